"""What goes wrong with an OpenAI-compatible endpoint: errors of HTTP and below it, as memserver's own.

Owns how the endpoints say that a prompt is too long, a model missing, a limit reached. Leaves to
`endpoint` what is done about it.
"""

import json
import math
import os
import re
import time
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any, Protocol

import aiohttp
from aiohttp.http import HttpProcessingError

from memserver.errors import (
    ContextOverflow,
    ModelAnswerTooLarge,
    ModelError,
    ModelNotFound,
    ModelRejected,
    ModelTimeout,
    ModelUnavailable,
)
from memserver.messages import JsonObject

_OVERFLOWS = re.compile(
    "context_length_exceeded|exceed_context_size|maximum context length|maximum model length|"
    "longer than the model's context|exceed context window|exceeds the available context size|"
    "exceeds the context length|context size has been exceeded|context window exceeded|"
    r"prompt is too long|max_new_tokens` must be <=|must have less than \d+ tokens",
    re.IGNORECASE,
)
"""Of OpenAI, vLLM, SGLang, llama.cpp, llama-cpp-python, Ollama, TGI and TEI."""
_NO_MODEL = re.compile(
    r"model_not_found|\b(model|adapter)\b.{0,300}?(does not exist|not found)|not a valid model|"
    r"\b(invalid|unknown)[ _]model\b|no such model",
    re.IGNORECASE | re.DOTALL,
)
"""Of OpenAI, vLLM, Ollama, llama.cpp, OpenRouter, Mistral and LiteLLM."""
_HINTS = {
    401: "Set {0}_API_KEY to a key that this endpoint takes.",
    403: "The key in {0}_API_KEY may not use this model.",
    404: "Check {0}_MODEL, and that {0}_BASE_URL ends in /v1.",
    429: "The endpoint limits requests; they succeed again later.",
}
FOREIGN = (aiohttp.ClientError, HttpProcessingError, OSError, ValueError)
"""What aiohttp raises, and what is under it."""
STREAMED = 8
"""How many times an answer's bytes a stream may have: each token comes with an envelope."""
_TOLD = 500
_LOOKED_AT = 10_000
_LONGEST_ERROR = 100_000


class Asked(Protocol):
    """What errors tell of an endpoint."""

    @property
    def title(self) -> str:
        """What it is called."""
        ...

    @property
    def variables(self) -> str:
        """How the settings' names start that hints tell of."""
        ...

    @property
    def remedy(self) -> str:
        """What to do when it fails, instead of hints that name settings; may be empty."""
        ...

    @property
    def timeout(self) -> float:
        """Seconds for a whole answer."""
        ...

    @property
    def most_bytes(self) -> int:
        """Of an answer."""
        ...

    @property
    def most_values(self) -> int:
        """In an answer."""
        ...


class StatusError(Exception):
    """An answer that is no success, or an error in the middle of a stream.

    Attributes:
        status: of HTTP; in a stream, the one that the error names, if it does.
        told: what the endpoint says went wrong.
        kind: its code and type, for telling errors of one status apart.
        retry_after: seconds that the endpoint asks to wait.
    """

    def __init__(
        self, status: int | None, error: object, *, retry_after: float | None = None
    ) -> None:
        details = error if isinstance(error, dict) else {}
        self.status = status
        self.told = str(details.get("message") or error or "it does not say why")
        self.kind = f"{details.get('code', '')} {details.get('type', '')}"
        self.retry_after = retry_after
        super().__init__(self.told)


def translated(endpoint: Asked, error: Exception) -> ModelError:
    """The error of memserver's that an error of HTTP, or of what is under it, stands for."""
    if isinstance(error, StatusError) and error.status is not None:
        return _of_status(endpoint, error, error.status)
    if isinstance(error, aiohttp.ServerTimeoutError):
        return ModelTimeout(f"The {endpoint.title} did not answer in time.")
    if isinstance(error, TimeoutError):
        return ModelTimeout(
            f"The {endpoint.title} did not answer in time, within {endpoint.timeout:g} seconds."
        )
    # A ClientResponseError's text has the whole URL in it, which may be a proxy's with its password.
    told = error.message if isinstance(error, aiohttp.ClientResponseError) else _words(error)
    return ModelUnavailable(
        f"The {endpoint.title} can't be reached: {(told or type(error).__name__)[:_TOLD]}",
        hint=endpoint.remedy
        or f"Check that {endpoint.variables}_BASE_URL is right and that the endpoint is up.",
    )


def _words(error: Exception) -> str:
    """What an error says, without the host and address that it names: tenants read it."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its name can't be resolved"
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number) if number is not None and number > 0 else str(error)


def _of_status(endpoint: Asked, error: StatusError, status: int) -> ModelError:
    text = f"{error.told[:_LOOKED_AT]} {error.kind[:_TOLD]}"
    message = f"The {endpoint.title} answered {status}: {error.told[:_TOLD]}"
    hint = endpoint.remedy or _HINTS.get(status, "").format(endpoint.variables)
    if _OVERFLOWS.search(text):
        return ContextOverflow(message)
    if status in {400, 404} and _NO_MODEL.search(text):
        return ModelNotFound(message, hint=hint)
    if status == 408:
        return ModelTimeout(message)
    if status >= 500 or (status == 429 and "insufficient_quota" not in text):
        return ModelUnavailable(message, hint=hint)
    return ModelRejected(message, hint=hint)


def not_json(endpoint: Asked) -> ModelUnavailable:
    """The error of an answer that is no JSON object, or not the one that was asked for."""
    return ModelUnavailable(
        f"The {endpoint.title} did not answer as an OpenAI-compatible endpoint does.",
        hint=endpoint.remedy or f"Check that {endpoint.variables}_BASE_URL ends in /v1.",
    )


def too_large(endpoint: Asked) -> ModelAnswerTooLarge:
    """The error of an answer that has more bytes or values than are read."""
    return ModelAnswerTooLarge(
        f"The {endpoint.title} answered more than is read: {endpoint.most_bytes} bytes or "
        f"{endpoint.most_values} values, or {STREAMED} times that in a stream.",
        hint=endpoint.remedy or "Look at what the endpoint answers.",
    )


async def read_at_most(response: aiohttp.ClientResponse, most: int) -> bytes | None:
    """The body; None: it is longer, and was not read to its end."""
    parts, size = [], 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > most:
            return None
        parts.append(chunk)
    return b"".join(parts)


async def status_error(response: aiohttp.ClientResponse) -> StatusError:
    """The error in an answer: its `error`, or the whole where there is none, as old vLLM sends it."""
    error: Any = response.reason
    with suppress(*FOREIGN, RecursionError):
        body = json.loads(await read_at_most(response, _LONGEST_ERROR) or b"")
        error = body.get("error", body) if isinstance(body, dict) else body
    retry_after = _seconds(response.headers.get("Retry-After", ""))
    return StatusError(response.status, error, retry_after=retry_after)


def raise_if_error(event: JsonObject) -> None:
    """Raise the error that came instead of an event; its code is the HTTP status, if any."""
    error = event.get("error")
    if error:
        code = error.get("code") if isinstance(error, dict) else None
        raise StatusError(code if isinstance(code, int) and 400 <= code < 600 else None, error)


def _seconds(retry_after: str) -> float | None:
    """What a Retry-After asks for: a number of seconds or a date."""
    try:
        if retry_after.endswith("GMT"):
            seconds = parsedate_to_datetime(retry_after).timestamp() - time.time()
        else:
            seconds = float(retry_after)
    except ValueError:
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
