"""Adds to the OpenAPI document what holds for all routes alike: keys, scopes, limits, idempotency, examples."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.middleware import Middleware
from starlette.types import ASGIApp
from typing_extensions import override

from memserver.api.errors import CODES, SCHEMAS, body
from memserver.api.examples import NoExample, example
from memserver.api.middleware.access import required_scope
from memserver.api.middleware.idempotency import HEADER, LONGEST_KEY, REPLAYED
from memserver.api.middleware.origin import READING
from memserver.api.openai.errors import OpenAIErrorResponse, error_body, speaks_openai
from memserver.messages import JsonObject
from memserver.wire.base import ErrorResponse

SCHEME = "api_key"
METHODS = frozenset({"get", "put", "post", "patch", "delete"})
KEY_ONLY = ("401", "403", "429")
"""Answers that only a route that needs a key gives."""
JSON = "application/json"
RETRY_AFTER = {
    "Retry-After": {
        "description": "Seconds after which one more is taken.",
        "schema": {"type": "integer"},
    }
}
IDEMPOTENCY_KEY = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "description": "A repeated request with the same key gets the first answer.",
    "schema": {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY},
}
REPLAYED_HEADER = {
    "description": "`true`, if the answer was given before.",
    "schema": {"type": "string"},
}
_PAGE = re.compile(r"\bPage_(\w+?)_(?:UUID|int|str)_\b")
"""How pydantic names a page in the document; AgentPage is easier to read."""
_SENTENCE = re.compile(r"[.:;](?:\s|$)")
_DESCRIPTION = """An API key, as `memserver keys create` or `POST /v1/keys` shows it once. Its scopes: `read` \
for GET, `write` for everything else, `admin` for keys and tenants and for all of the above. While the server \
has no keys, it needs none and listens on the loopback only."""


class DocumentedApp(FastAPI):
    """`around`: middleware that stands around the answers to faults too, the outermost first."""

    def __init__(self, around: Sequence[Middleware], **settings: Any) -> None:  # noqa: ANN401 - FastAPI's
        super().__init__(**settings)
        self._around = around

    @override
    def build_middleware_stack(self) -> ASGIApp:
        stack = super().build_middleware_stack()
        for each in reversed(self._around):
            stack = each.cls(stack, *each.args, **each.kwargs)
        return stack

    @override
    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            document = json.dumps(super().openapi())
            self.openapi_schema = json.loads(_PAGE.sub(r"\1Page", document))
            _complete(self.openapi_schema)
        return self.openapi_schema


def operation_id(route: APIRoute) -> str:
    """The name of the route's function, which no two share: what generated clients call it."""
    return route.name


def _complete(document: dict[str, Any]) -> None:
    components = document.setdefault("components", {})
    components["securitySchemes"] = {
        SCHEME: {"type": "http", "scheme": "bearer", "description": _DESCRIPTION}
    }
    for failure in (ErrorResponse, OpenAIErrorResponse):
        schema = failure.model_json_schema(ref_template=SCHEMAS, mode="serialization")
        components["schemas"] |= {**schema.pop("$defs"), failure.__name__: schema}
    components["schemas"] = dict(sorted(components["schemas"].items()))
    for path, item in document["paths"].items():
        for method in METHODS & item.keys():
            _complete_operation(item[method], method.upper(), path)
            _show_examples(item[method], path, document)


def _complete_operation(operation: dict[str, Any], method: str, path: str) -> None:
    operation["summary"] = _SENTENCE.split(operation["description"], maxsplit=1)[0]
    scope = required_scope(method, path)
    operation["security"] = [] if scope is None else [{SCHEME: [scope]}]
    unlikely = (
        *(KEY_ONLY if scope is None else ()),
        *(["422"] if speaks_openai(path) else ()),
        *(["415"] if method in READING else ()),
    )
    for status in unlikely:
        operation["responses"].pop(status, None)
    if "429" in operation["responses"]:
        operation["responses"]["429"]["headers"] = RETRY_AFTER
    if method == "POST":
        parameters = operation.setdefault("parameters", [])
        if not any(parameter["name"] == HEADER for parameter in parameters):
            parameters.append(IDEMPOTENCY_KEY)
            for status, response in operation["responses"].items():
                if status.startswith("2"):
                    response.setdefault("headers", {})[REPLAYED] = REPLAYED_HEADER


def _show_examples(operation: dict[str, Any], path: str, document: JsonObject) -> None:
    for content in _json_of(operation.get("requestBody", {})):
        with suppress(NoExample):
            content["example"] = example(content["schema"], document, sent=True)
    for status, response in operation["responses"].items():
        for content in _json_of(response):
            failed = str(content["schema"].get("$ref", "")).endswith("ErrorResponse")
            with suppress(NoExample):
                content["example"] = (
                    _failure(int(status), response["description"], path)
                    if failed
                    else example(content["schema"], document, sent=False)
                )


def _json_of(holder: dict[str, Any]) -> Iterator[dict[str, Any]]:
    content = holder.get("content", {}).get(JSON)
    if content is not None:
        yield content


def _failure(status: int, message: str, path: str) -> JsonObject:
    content = body(CODES[status], message)
    return error_body(status, content["error"]) if speaks_openai(path) else content
