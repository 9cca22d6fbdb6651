"""What the refusals of embedding endpoints mean for what was asked."""

import re

from memserver.errors import (
    ContextOverflow,
    EmbeddingError,
    EmbeddingRejected,
    ModelAnswerTooLarge,
    ModelError,
    ModelNotFound,
    ModelQuotaExceeded,
    ModelRefused,
    ModelRejected,
    ModelUnavailable,
)
from memserver.messages import JsonObject

_WHATEVER = {401, 402, 403, 404, 405, 410}
"""Statuses of an endpoint that would refuse any text."""
_TOO_LONG = re.compile(
    r"too (long|large|big|many (tokens|characters))|\blength\b|exceed|\btokens\b|\bcontext\b|characters",
    re.IGNORECASE,
)
_TOO_MUCH = re.compile(
    r"too (long|large|big)|too many (inputs?|texts?|items|documents|tokens)|batch[ _]size",
    re.IGNORECASE,
)
"""Said with a 5xx or a 429 all the same: by llama.cpp, and by OpenAI of a request over a minute's tokens."""
_REFUSED_HINT = (
    "It refuses the same text again: change or shorten it. If it refuses every text, look at "
    "MEMSERVER_EMBEDDING_MODEL, and at what it wants in MEMSERVER_EMBEDDING_BODY."
)
_TOLD = 500


class RefusedTexts(EmbeddingRejected):
    """A refusal of what was in one request: fewer texts, or a shorter one, may be taken.

    Attributes:
        too_long: whether a text alone may be taken when it is shorter.
    """

    def __init__(self, message: str, *, hint: str = _REFUSED_HINT, too_long: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.too_long = too_long


def translated(error: ModelError) -> EmbeddingError:
    """The embedder's error that an endpoint's error stands for."""
    status = getattr(error.__cause__, "status", None)
    if isinstance(error, ModelNotFound | ModelQuotaExceeded) or status in _WHATEVER:
        return EmbeddingRejected(error.message, hint=error.hint, of_text=False)
    if isinstance(error, ModelAnswerTooLarge):
        return RefusedTexts(error.message, hint=error.hint)
    long = isinstance(error, ContextOverflow) or status == 413
    if long or isinstance(error, ModelRejected | ModelRefused) or _TOO_MUCH.search(error.message):
        long = long or _TOO_LONG.search(error.message) is not None
        return RefusedTexts(error.message, hint=error.hint or _REFUSED_HINT, too_long=long)
    failed_on_it = isinstance(error, ModelUnavailable) and status not in {None, 429, 503}
    return EmbeddingError(error.message, hint=error.hint, of_text=failed_on_it)


def raise_refusal(answer: JsonObject) -> None:
    """Raise the error that an endpoint sends with a success's status."""
    error = answer.get("error")
    if not error:
        return
    details = error if isinstance(error, dict) else {"message": error}
    words = str(details.get("message") or error)[:_TOLD]
    message = f"The embedding endpoint answered with an error: {words}"
    if str(details.get("code")) in {"400", "413", "422"}:
        raise RefusedTexts(message, too_long=_TOO_LONG.search(words) is not None)
    raise EmbeddingError(message)
