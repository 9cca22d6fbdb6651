"""What goes wrong with an OpenAI-compatible endpoint, as memserver's errors, each with what to do about it."""

import os

import aiohttp

from memserver.errors import (
    ContextOverflow,
    ModelAnswerTooLarge,
    ModelError,
    ModelNotFound,
    ModelQuotaExceeded,
    ModelRefused,
    ModelRejected,
    ModelTimeout,
    ModelUnavailable,
)
from memserver.openai_http.endpoint import Endpoint
from memserver.openai_http.errors import StatusError, words_of
from memserver.openai_http.wordings import is_exhausted, says, window_in

STREAMED = 8
"""How many times an answer's bytes a stream may have: each token comes with an envelope."""
_SHOWN = 500
_LOOKED_AT = 10_000

_HINTS = {
    400: "Its words say what it doesn't take; docs/endpoints.md says which settings change what is sent.",
    401: "Set {0}_API_KEY to a key that this endpoint takes.",
    402: "Look at the credit, the plan and the limits of the account that {0}_API_KEY belongs to.",
    403: "The key in {0}_API_KEY may not use this model.",
    404: "Check {0}_MODEL, and that {0}_BASE_URL ends in /v1, or as the provider's documentation says.",
    413: "The request has more bytes than the endpoint, or a proxy before it, takes; raise its limit.",
    429: "The endpoint limits requests; they succeed again later.",
    500: "The endpoint, or a proxy before it, fails; its log says why.",
}
_WAIT = "The endpoint limits requests; it asks to wait {0:.3g} seconds."
_LOADS = "Requests succeed when the model is loaded."
_REFUSED = "Say it in other words. What the endpoint filters is a setting at the provider; another model may take it."


def translate(endpoint: Endpoint, error: Exception) -> ModelError:
    """The error of memserver's that an error of HTTP, or of what is under it, stands for."""
    if isinstance(error, StatusError):
        return _of_status(endpoint, error)
    if isinstance(error, aiohttp.ServerTimeoutError):
        return ModelTimeout(f"The {endpoint.title} did not answer in time.")
    if isinstance(error, TimeoutError):
        return ModelTimeout(
            f"The {endpoint.title} did not answer in time, within {endpoint.timeout:g} seconds."
        )
    # A ClientResponseError's text has the whole URL in it, which may be a proxy's with its password.
    words = error.message if isinstance(error, aiohttp.ClientResponseError) else _words(error)
    return ModelUnavailable(
        f"The {endpoint.title} can't be reached: {(words or type(error).__name__)[:_SHOWN]}",
        hint=endpoint.remedy
        or f"Check that {endpoint.variables}_BASE_URL is right and that the endpoint is up.",
    )


def not_json(endpoint: Endpoint, body: bytes = b"", status: int = 200) -> ModelUnavailable:
    said = f"It said: {words}" if (words := words_of(body)) else f"Its answer was empty ({status})."
    return ModelUnavailable(
        f"The {endpoint.title} did not answer as an OpenAI-compatible endpoint does. {said}",
        hint=endpoint.remedy or f"Check that {endpoint.variables}_BASE_URL ends in /v1.",
    )


def ended_early(endpoint: Endpoint) -> ModelUnavailable:
    return ModelUnavailable(
        f"The {endpoint.title} ended its stream early: what came is not the whole answer.",
        hint=endpoint.remedy or "The endpoint, or a proxy before it, cut it off; ask again.",
    )


def too_large(endpoint: Endpoint) -> ModelAnswerTooLarge:
    return ModelAnswerTooLarge(
        f"The {endpoint.title} answered more than is read: {endpoint.most_bytes} bytes or "
        f"{endpoint.most_values} values, or {STREAMED} times that in a stream.",
        hint=endpoint.remedy or "Look at what the endpoint answers.",
    )


def _words(error: Exception) -> str:
    """What an error says, without the host and address that it names: tenants read it."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its name can't be resolved"
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number) if number is not None and number > 0 else str(error)


def _of_status(endpoint: Endpoint, error: StatusError) -> ModelError:
    """The words decide first: of a request that can't succeed no status says so reliably."""
    status = error.status or 500
    text = f"{error.words[:_LOOKED_AT]}\n{error.kind[:_LOOKED_AT]}"
    answered = f"answered {error.status}" if error.status else "answered with an error"
    message = f"The {endpoint.title} {answered}: {error.words[:_SHOWN]}"
    named = error.status is None or status < 500
    window = window_in(text, limited=status == 429)
    if window is not None:
        return ContextOverflow(message, window=error.window or window or None)
    if named and says(text, "refused"):
        return ModelRefused(message, hint=_REFUSED)
    if status == 402 or (named and is_exhausted(text, error.retry_after)):
        return ModelQuotaExceeded(message, hint=_hint(endpoint, 402))
    return _by_status(endpoint, error, status, text, message)


def _by_status(
    endpoint: Endpoint, error: StatusError, status: int, text: str, message: str
) -> ModelError:
    if says(text, "loading"):
        return ModelUnavailable(message, hint=endpoint.remedy or _LOADS)
    if status in {400, 403, 404} and says(text, "unknown_model"):
        return ModelNotFound(message, hint=_hint(endpoint, 404))
    if status == 408:
        return ModelTimeout(message)
    if status == 429 and error.retry_after and not endpoint.remedy:
        return ModelUnavailable(message, hint=_WAIT.format(error.retry_after))
    if status >= 500 and says(text, "not_able"):
        return ModelRejected(message, hint=_hint(endpoint, 400))
    if status >= 500 or status == 429:
        return ModelUnavailable(message, hint=_hint(endpoint, min(status, 500)))
    return ModelRejected(message, hint=_hint(endpoint, 401 if says(text, "bad_key") else status))


def _hint(endpoint: Endpoint, status: int) -> str:
    hint = _HINTS.get(400 if status == 422 else status, "")
    return endpoint.remedy or hint.format(endpoint.variables)
