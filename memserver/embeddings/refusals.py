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
from memserver.openai_http.wordings import says

_WHATEVER = {401, 402, 403, 404, 405, 410}
"""Statuses of an endpoint that would refuse any text."""
_TOO_LONG = re.compile(
    r"too (long|large|big|many (tokens|characters))|\blength\b|exceed|\btokens\b|\bcontext\b|characters",
    re.IGNORECASE,
)
_TOO_MUCH = re.compile(
    r"too (large|big)\b|too many (inputs?|texts?|items|documents)|batch[ _]size", re.IGNORECASE
)
"""Said with a 5xx or a 429 all the same: by llama.cpp, and by OpenAI of a request over a minute's tokens. Not `Too many
tokens`, which is Bedrock's throttling, and not `took too long`."""
_REFUSED_HINT = (
    "It refuses the same text again: change or shorten it. If it refuses every text, look at "
    "MEMSERVER_EMBEDDING_MODEL, and at what it wants in MEMSERVER_EMBEDDING_BODY."
)


class RefusedTexts(EmbeddingRejected):
    """A refusal of what was in one request: fewer texts, or a shorter one, may be taken.

    Attributes:
        too_long: whether a text alone may be taken when it is shorter.
    """

    def __init__(self, message: str, *, hint: str = _REFUSED_HINT, too_long: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.too_long = too_long


def translate(error: ModelError) -> EmbeddingError:
    status = getattr(error.__cause__, "status", None)
    if isinstance(error, ModelAnswerTooLarge | ModelRefused):
        return RefusedTexts(error.message, hint=error.hint)
    whatever = status in _WHATEVER or says(error.message, "bad_key")
    if whatever or isinstance(error, ModelNotFound | ModelQuotaExceeded):
        return EmbeddingRejected(error.message, hint=error.hint, of_text=False)
    long = isinstance(error, ContextOverflow) or status == 413
    if long or isinstance(error, ModelRejected) or _TOO_MUCH.search(error.message):
        long = long or _TOO_LONG.search(error.message) is not None
        return RefusedTexts(error.message, too_long=long)
    failed_on_it = isinstance(error, ModelUnavailable) and status not in {None, 429, 503}
    return EmbeddingError(error.message, hint=error.hint, of_text=failed_on_it)
