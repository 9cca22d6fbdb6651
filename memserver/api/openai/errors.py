"""Errors in OpenAI's shape: on the paths that speak its API, whatever part of the server they come from."""

import json
import re
from datetime import UTC
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memserver.agent.endings import as_json
from memserver.agent.events import QueuedTurn
from memserver.api.errors import DOCUMENTED, STATUS, documented
from memserver.api.paths import route_path
from memserver.errors import AgentWaits, ContextOverflow, MemserverError
from memserver.messages import JsonObject

_PATHS = re.compile(
    r"^/v1/(chat|completions|embeddings|responses|models|conversations|audio|images|videos|moderations|files|uploads"
    r"|batches|fine_tuning|vector_stores|assistants|threads|realtime|containers|evals)(/|$)"
)
"""OpenAI's, whether we have them or not."""
_PARAMETER = re.compile(r"^([a-z][\w.\[\]]*): ")
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_CODES = {ContextOverflow.code: "context_length_exceeded"}
_NEVER_AGAIN = {"x-should-retry": "false"}
"""OpenAI's clients repeat a failed request by themselves, unless an answer says not to."""


def speaks_openai(path: str) -> bool:
    return _PATHS.match(path) is not None


class OpenAIErrorBody(BaseModel):
    """What went wrong."""

    message: str = Field(examples=["The model 'sam' does not exist."])
    type: str = Field(examples=["invalid_request_error"])
    param: str | None = Field(examples=[None])
    code: str | None = Field(examples=["model_not_found"])


class OpenAIErrorResponse(BaseModel):
    """The body of an answer that is no success."""

    error: OpenAIErrorBody


RESPONSES: dict[int | str, dict[str, Any]] = {
    status: documented(ours["description"], OpenAIErrorResponse)
    for status, ours in DOCUMENTED.items()
}


class Refusal(Exception):
    """An error that has a meaning of its own in OpenAI's API; `error` has code, message and hint, as our own have them."""

    def __init__(self, status: int, error: JsonObject, headers: dict[str, str]) -> None:
        super().__init__(error["message"])
        self.status = status
        self.error = error
        self.headers = headers

    @property
    def body(self) -> JsonObject:
        return error_body(self.status, self.error)


def turn_failed(error: JsonObject) -> Refusal:
    """The agent's turn failed: what was said is in its history, and saying it again would not fix it."""
    return Refusal(_status(STATUS.get(error["code"], 500)), error, dict(_NEVER_AGAIN))


def refuse_again(error: MemserverError) -> Refusal:
    """One of our own errors that the same request would get again, though OpenAI's clients repeat one of its status."""
    return Refusal(STATUS[error.code], as_json(error), dict(_NEVER_AGAIN))


def queued(end: QueuedTurn) -> Refusal:
    """The agent's earlier turn waits for an answer to its call: the message is stored after it."""
    call = end.blocked_by.record
    expires_at = end.expires_at.astimezone(UTC)
    wanted = "an approval" if call.waits_for == "approval" else "its result"
    message = (
        f"The message is stored. It is answered when the call {call.call.id} of {call.call.name}, which waits "
        f"for {wanted}, has got that or was cancelled, or after {expires_at:%Y-%m-%d %H:%M} UTC."
    )
    hint = "GET /v1/calls/waiting has it; the same Idempotency-Key gets the answer later."
    error = {"code": AgentWaits.code, "message": message, "hint": hint}
    return Refusal(STATUS[AgentWaits.code], error, dict(_NEVER_AGAIN))


def no_model(name: str) -> Refusal:
    """There is no such agent, which OpenAI's clients know as a model."""
    message = f"The model {name[:200]!r} does not exist: there is no agent of this name or id."
    hint = "GET /v1/models lists them."
    return Refusal(404, {"code": "model_not_found", "message": message, "hint": hint}, {})


def no_previous_response(response_id: str) -> Refusal:
    """The response that a request builds on is none of this agent."""
    message = f"previous_response_id: there is no response {response_id[:100]!r} of this agent."
    return Refusal(400, {"code": "previous_response_not_found", "message": message}, {})


def install(app: FastAPI) -> None:
    app.add_exception_handler(Refusal, _refuse)


async def _refuse(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Refusal)
    return JSONResponse(error.body, error.status, error.headers)


class OpenAIErrors:
    """Gives errors on OpenAI's paths its shape. Stands around everything else that may answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and speaks_openai(route_path(scope)):
            send = _Rewriting(send)
        await self._app(scope, receive, send)


class _Rewriting:
    """Sends on what it gets, but an error's body only when it has it whole."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: Message | None = None
        self._body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] >= 400:
            self._start = message
            return
        if self._start is None:
            await self._send(message)
            return
        self._body += message.get("body", b"")
        if not message.get("more_body"):
            await self._finish(self._start)

    async def _finish(self, start: Message) -> None:
        error = _ours(self._body)
        body = self._body
        if error is not None:
            status = _status(start["status"])
            body = json.dumps(error_body(status, error), ensure_ascii=False).encode()
            start = {**start, "status": status, "headers": list(start["headers"])}
            MutableHeaders(scope=start)["content-length"] = str(len(body))
        await self._send(start)
        await self._send({"type": "http.response.body", "body": body})


def error_body(status: int, error: JsonObject) -> JsonObject:
    """One of our errors in OpenAI's shape; its hint is part of the message."""
    message, hint, code = error["message"], error.get("hint", ""), error["code"]
    parameter = _PARAMETER.match(message) if status == 400 else None
    default = "server_error" if status >= 500 else "invalid_request_error"
    content = OpenAIErrorBody(
        message=f"{message} {hint}".strip(),
        type=_TYPES.get(status, default),
        param=parameter[1] if parameter else None,
        code=_CODES.get(code, code),
    )
    return OpenAIErrorResponse(error=content).model_dump()


def _status(status: int) -> int:
    """OpenAI says 400 of all that is wrong with a request."""
    return 400 if status == 422 else status


def _ours(body: bytes) -> JsonObject | None:
    try:
        error = json.loads(body)["error"]
    except (ValueError, TypeError, KeyError):
        return None
    return error if isinstance(error, dict) and "type" not in error else None
