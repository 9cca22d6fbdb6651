"""The connection to an OpenAI-compatible endpoint: bytes of JSON out, values of JSON back.

Owns the one AsyncOpenAI client, its time limit, and the translation of every error of it into
memserver's. Leaves what is asked to `openai_compatible` and `tokens`. Bodies go out as prepared bytes
and answers come back as plain values: the SDK's models would cost more than all else in a call.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import openai

from memserver.errors import (
    ContextOverflow,
    ModelError,
    ModelRejected,
    ModelTimeout,
    ModelUnavailable,
    SetupError,
)
from memserver.messages import JsonObject

_OVERFLOWS = (
    "context_length_exceeded",
    "exceed_context_size",
    "maximum context length",
    "maximum model length",
    "longer than the model's context",
    "exceed context window",
    "exceeds the available context size",
    "exceeds the context length",
    "context size has been exceeded",
    "context window exceeded",
    "prompt is too long",
    "max_new_tokens` must be <=",
)
"""Of OpenAI, vLLM, SGLang, llama.cpp, llama-cpp-python, Ollama and TGI, in lower case."""
_HINTS = {
    401: "Set MEMSERVER_LLM_API_KEY to a key that this endpoint takes.",
    403: "The key in MEMSERVER_LLM_API_KEY may not use this model.",
    404: "Check MEMSERVER_LLM_MODEL, and that MEMSERVER_LLM_BASE_URL ends in /v1.",
    429: "The endpoint limits requests; they succeed again later.",
}
_UNREACHABLE_HINT = "Check that MEMSERVER_LLM_BASE_URL is right and that the endpoint is up."
_FOREIGN = (openai.OpenAIError, httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL)
_TOLD = 500


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an endpoint is and how it is spoken to.

    Attributes:
        base_url: ending in /v1.
        api_key: empty where none is wanted.
        timeout: seconds for a whole answer, retries included.
        max_retries: after a failed connection or a 5xx, before anything was answered.
    """

    base_url: str
    api_key: str = field(default="", repr=False)
    timeout: float = 120
    max_retries: int = 1


class EndpointClient:
    """Speaks JSON with an endpoint over connections that it keeps."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Make it; nothing is asked yet.

        Raises:
            SetupError: the address is no URL.
        """
        self._endpoint = endpoint
        try:
            self._client = openai.AsyncOpenAI(
                base_url=endpoint.base_url,
                api_key=endpoint.api_key or "none",
                timeout=httpx2.Timeout(endpoint.timeout, connect=min(10, endpoint.timeout)),
                max_retries=endpoint.max_retries,
            )
        except httpx2.InvalidURL as error:
            raise SetupError(
                f"The address of the model's endpoint is no URL: {error}",
                hint="Mend MEMSERVER_LLM_BASE_URL: http://host:port/v1.",
            ) from error
        # The SDK takes these from the environment; they are OpenAI's own, not every endpoint's.
        self._client.organization = None
        self._client.project = None

    async def models(self) -> list[JsonObject] | None:
        """The cards of the models that the endpoint lists; None where it has no such list.

        Raises:
            ModelError: of the kind that `translated` says.
        """
        async with self._limits():
            try:
                answer = await self._client.get("/models", cast_to=httpx2.Response)
            except openai.NotFoundError:
                return None
            listed = _object(answer).get("data")
        if not isinstance(listed, list):
            raise _not_json()
        return [card for card in listed if isinstance(card, dict)]

    async def post(self, path: str, body: bytes) -> JsonObject:
        """Send JSON and wait for a JSON object.

        Raises:
            ModelError: of the kind that `translated` says.
        """
        async with self._limits():
            answer = await self._client.post(
                path, content=body, cast_to=httpx2.Response, options={"headers": _JSON}
            )
            return _object(answer)

    async def stream(self, path: str, body: bytes) -> AsyncGenerator[JsonObject, None]:
        """Send JSON and give the JSON objects of the event stream as they come.

        Raises:
            ModelError: of the kind that `translated` says.
        """
        async with self._limits():
            events = await self._client.post(
                path,
                content=body,
                cast_to=object,
                options={"headers": _JSON},
                stream=True,
                stream_cls=openai.AsyncStream[object],
            )
            async with events:
                async for event in events:
                    if isinstance(event, dict):
                        yield event

    async def aclose(self) -> None:
        """Give back the connections."""
        await self._client.close()

    @asynccontextmanager
    async def _limits(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._endpoint.timeout):
                yield
        except TimeoutError as error:
            raise ModelTimeout(
                f"The model did not answer within {self._endpoint.timeout:g} seconds."
            ) from error
        except _FOREIGN as error:
            raise translated(error) from error
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _not_json() from error


def translated(error: Exception) -> ModelError:
    """The error of memserver's that an error of the SDK, or of the HTTP library under it, stands for."""
    if isinstance(error, openai.APITimeoutError | httpx2.TimeoutException):
        return ModelTimeout("The model did not answer in time.")
    if isinstance(error, openai.LengthFinishReasonError | openai.ContentFilterFinishReasonError):
        return ModelRejected(f"The endpoint ended the answer early: {_told(error)}")
    if isinstance(error, openai.APIResponseValidationError):
        return _not_json()
    status = _status(error)
    if status is not None:
        return _of_status(status, error)
    return ModelUnavailable(
        f"The model's endpoint can't be reached: {_told(error)}", hint=_UNREACHABLE_HINT
    )


def _status(error: Exception) -> int | None:
    """The HTTP status; for an error in the middle of a stream, the one that its body names."""
    if isinstance(error, openai.APIStatusError):
        return error.status_code
    body = getattr(error, "body", None)
    code = body.get("code") if isinstance(body, dict) else None
    return code if isinstance(code, int) and 400 <= code < 600 else None


def _of_status(status: int, error: Exception) -> ModelError:
    text = f"{_told(error)} {getattr(error, 'code', '')} {getattr(error, 'type', '')}".lower()
    message = f"The model's endpoint answered {status}: {_told(error)}"
    hint = _HINTS.get(status, "")
    if any(wording in text for wording in _OVERFLOWS):
        return ContextOverflow(message)
    if status == 408:
        return ModelTimeout(message)
    if status >= 500 or (status == 429 and "insufficient_quota" not in text):
        return ModelUnavailable(message, hint=hint)
    return ModelRejected(message, hint=hint)


def _told(error: Exception) -> str:
    cause = error.__cause__ if isinstance(error, openai.APIConnectionError) else None
    return (str(cause or "") or str(error) or type(error).__name__)[:_TOLD]


def _not_json() -> ModelUnavailable:
    return ModelUnavailable(
        "The endpoint's answer is not what an OpenAI-compatible endpoint sends.",
        hint="Check that MEMSERVER_LLM_BASE_URL ends in /v1.",
    )


def _object(response: httpx2.Response) -> JsonObject:
    value: Any = json.loads(response.content)
    if not isinstance(value, dict):
        raise _not_json()
    return value


_JSON = {"Content-Type": "application/json"}
