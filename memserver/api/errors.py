"""Errors to HTTP, once: our tree to statuses, and everything else to the same shape."""

import logging
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from memserver import errors
from memserver.agent.budget import seconds_to_reset
from memserver.api.pages import looks_for_oauth
from memserver.api.paths import allowed_methods, route_path
from memserver.messages import JsonObject
from memserver.wire.base import ErrorResponse

logger = logging.getLogger(__name__)

_MOST_PROBLEMS = 10
"""Faults of a body that are named."""

_STATUS: dict[type[errors.MemserverError], int] = {
    errors.MemserverError: 500,
    errors.InvalidInput: 422,
    errors.BadRequest: 400,
    errors.UnsupportedMediaType: 415,
    errors.NotFound: 404,
    errors.MissingApiKey: 401,
    errors.InvalidApiKey: 401,
    errors.Forbidden: 403,
    errors.RequestTooLarge: 413,
    errors.RateLimited: 429,
    errors.Conflict: 409,
    errors.ToolError: 422,
    errors.ToolProcessEnded: 422,
    errors.McpServerError: 502,
    errors.ModelError: 502,
    errors.ModelUnavailable: 503,
    errors.ModelTimeout: 504,
    errors.ContextOverflow: 422,
    errors.DocumentError: 422,
    errors.DocumentTooLarge: 413,
    errors.UnsupportedDocument: 415,
    errors.AgentFileError: 422,
    errors.AgentFileUnsupported: 415,
    errors.AgentFileTooLarge: 413,
    errors.TurnTimeout: 504,
    errors.EmbeddingError: 503,
    errors.EmbeddingRejected: 502,
    errors.DatabaseError: 503,
    errors.SetupError: 503,
    errors.ServerStarting: 503,
    errors.ServerStopping: 503,
}
"""A kind of error that is not here has the status of the kind that it belongs to."""


def _statuses() -> Iterator[tuple[str, int]]:
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.MemserverError):
            yield kind.code, next(_STATUS[each] for each in kind.__mro__ if each in _STATUS)


STATUS = dict(_statuses())
"""By an error's code."""

CODES: dict[int, str] = {
    400: "invalid_json",
    401: errors.MissingApiKey.code,
    403: errors.Forbidden.code,
    404: errors.NotFound.code,
    405: "method_not_allowed",
    409: errors.Conflict.code,
    413: errors.RequestTooLarge.code,
    415: errors.UnsupportedMediaType.code,
    422: errors.InvalidInput.code,
    429: errors.RateLimited.code,
    500: errors.MemserverError.code,
    502: errors.ModelError.code,
    503: errors.ModelUnavailable.code,
    504: errors.ModelTimeout.code,
}
"""Of each status that is documented, the code that it mostly has."""

SCHEMAS = "#/components/schemas/{model}"
"""Where the OpenAPI document has the schemas of models."""


def documented(description: str, model: type[BaseModel] = ErrorResponse) -> dict[str, Any]:
    """A failure of a route, for its `responses`.

    Named as a `model`, FastAPI would build a serializer of it for each status of each route, which was a third of a start.
    """
    schema = {"$ref": SCHEMAS.format(model=model.__name__)}
    return {"description": description, "content": {"application/json": {"schema": schema}}}


DOCUMENTED: dict[int | str, dict[str, Any]] = {
    status: documented(text)
    for status, text in {
        400: "The body is no JSON, or a header is malformed.",
        401: "The API key is missing, unknown, revoked or expired.",
        403: "The API key has not the scope that this needs, or is not the operator's.",
        404: "There is no such thing, or it isn't yours.",
        409: "The thing is not in a state that allows this.",
        413: "The body is larger than the server takes.",
        415: "The body was not sent as JSON.",
        422: "A field is missing or wrong; the message names it.",
        429: "The API key has made too many requests; Retry-After says when to ask again.",
        500: "A fault of the server's; its log says more.",
        502: "The model endpoint, the embedder, or an MCP server, refused or broke the protocol.",
        503: "The model, the embedder or the database can't be reached.",
        504: "The model gave no answer in time, or the turn took too long.",
    }.items()
}


def body(code: str, message: str, hint: str = "") -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "hint": hint}}


def answer(error: errors.MemserverError | HTTPException) -> JSONResponse:
    if isinstance(error, HTTPException):
        code = CODES.get(error.status_code, "http_error")
        content = body(code, str(error.detail))
        return JSONResponse(content, error.status_code, headers=dict(error.headers or {}))
    content = body(error.code, error.message, error.hint)
    return JSONResponse(content, STATUS[error.code], headers=_headers(error))


def turn_failed(error: JsonObject) -> JSONResponse:
    """The answer to a request whose turn has ended with this error."""
    again = {}
    if error["code"] == errors.TokenBudgetExceeded.code:
        again = {"Retry-After": str(seconds_to_reset(datetime.now(UTC)))}
    return JSONResponse(body(**error), STATUS[error["code"]], headers=again)


def _headers(error: errors.MemserverError) -> dict[str, str]:
    """What HTTP wants beside the body (RFC 6750 for keys, RFC 9110 for Retry-After)."""
    challenge = 'Bearer realm="memserver"'
    match error:
        case errors.MissingApiKey():
            return {"WWW-Authenticate": challenge}
        case errors.InvalidApiKey():
            return {"WWW-Authenticate": f'{challenge}, error="invalid_token"'}
        case errors.Forbidden(scope=scope) if scope:
            challenge = f'{challenge}, error="insufficient_scope", scope="{scope}"'
            return {"WWW-Authenticate": challenge}
        case errors.RateLimited():
            return {"Retry-After": str(error.retry_after)}
        case errors.DatabaseError() | errors.ServerStarting() | errors.ServerStopping():
            return {"Retry-After": "1"}
        case _:
            return {}


def log_if_database(what: str, error: errors.MemserverError) -> None:
    """Log the driver's words, which no client gets."""
    if isinstance(error, errors.DatabaseError):
        logger.warning("%s: %s", what, error)


def install(app: FastAPI) -> None:
    app.add_exception_handler(errors.MemserverError, _ours)
    app.add_exception_handler(RequestValidationError, _validation)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _fault)


async def _ours(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, errors.MemserverError)
    log_if_database(f"{request.method} {request.url.path}", error)
    return answer(error)


async def _validation(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    problems: Sequence[Any] = error.errors()
    if any(problem["type"] == "json_invalid" for problem in problems):
        hint = "Quote it for your shell, and send it as UTF-8."
        return JSONResponse(body("invalid_json", "The body is not valid JSON.", hint), 400)
    problems_shown = [_problem(each) for each in problems[:_MOST_PROBLEMS]]
    if len(problems) > _MOST_PROBLEMS:
        problems_shown.append(f"and {len(problems) - _MOST_PROBLEMS} more")
    message = "; ".join(problems_shown)
    hint = _fields_hint(request, problems)
    return JSONResponse(body(errors.InvalidInput.code, message, hint), 422)


def _fields_hint(request: Request, problems: Sequence[Any]) -> str:
    """What the body has to be, where that is what is wrong; else where to read of the call."""
    route = request.scope.get("route")
    field = getattr(route, "body_field", None)
    fields = getattr(getattr(field, "field_info", None), "annotation", None)
    names = list(getattr(fields, "model_fields", ()))
    if names and any(
        problem["loc"][0] == "body" and len(problem["loc"]) <= 2 for problem in problems
    ):
        return f"The body is a JSON object; its fields are {', '.join(names)}."
    return f"/docs describes {request.method} {request.url.path[:300]}."


def _problem(problem: Any) -> str:  # noqa: ANN401 - pydantic's
    """One of a body's faults; what the body calls a field may be of any length."""
    place = ".".join(str(part)[:100] for part in problem["loc"][1:6]) or problem["loc"][0]
    return f"{place}: {problem['msg'][:500]}"


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    if error.status_code not in (404, 405):
        return answer(error)
    hint = "/docs lists all routes; those of the API begin with /v1."
    if looks_for_oauth(route_path(request.scope)):
        hint = "memserver has no OAuth: send an API key, as Authorization: Bearer KEY."
    elif b"%2f" in request.scope.get("raw_path", b"").lower():
        hint = "What has a slash in its name is named by its id in a path."
    message = f"There is no {request.method} {request.url.path[:300]}."
    content = body(CODES[error.status_code], message, hint)
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = allowed_methods(request.scope)  # the router knows one route's alone
        content = body(CODES[405], message, f"This path takes {headers['Allow']}.")
    return JSONResponse(content, error.status_code, headers=headers)


async def _fault(request: Request, error: Exception) -> JSONResponse:
    logger.error("%s %s failed.", request.method, request.url.path, exc_info=error)
    return JSONResponse(
        body("internal_error", "The server has a fault.", "Its log says more."), 500
    )
