"""Adds to the OpenAPI document what holds for all routes alike: keys, scopes, limits, idempotency."""

from typing import Any

from fastapi import FastAPI
from typing_extensions import override

from memserver.api.access import required_scope
from memserver.api.idempotency import HEADER, LONGEST_KEY

SCHEME = "api_key"
METHODS = frozenset({"get", "put", "post", "patch", "delete"})
KEY_ONLY = ("401", "403", "429")
"""Answers that only a route that needs a key gives."""
_DESCRIPTION = """An API key, as `memserver keys create` or `POST /v1/keys` shows it once. Its scopes: `read` \
for GET, `write` for everything else, `admin` for keys and tenants and for all of the above. While the server \
has no keys, it needs none and listens on the loopback only."""


class DocumentedApp(FastAPI):
    """An application whose document tells these things too."""

    @override
    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document."""
        if self.openapi_schema is None:
            _complete(super().openapi())
        return super().openapi()


def _complete(document: dict[str, Any]) -> None:
    components = document.setdefault("components", {})
    components["securitySchemes"] = {
        SCHEME: {"type": "http", "scheme": "bearer", "description": _DESCRIPTION}
    }
    for path, item in document["paths"].items():
        for method in METHODS & item.keys():
            _complete_operation(item[method], method.upper(), path)


def _complete_operation(operation: dict[str, Any], method: str, path: str) -> None:
    scope = required_scope(method, path)
    operation["security"] = [] if scope is None else [{SCHEME: [scope]}]
    if scope is None:
        for status in KEY_ONLY:
            operation["responses"].pop(status, None)
    if method == "POST":
        parameters = operation.setdefault("parameters", [])
        if not any(parameter["name"] == HEADER for parameter in parameters):
            parameters.append(_idempotency_key())


def _idempotency_key() -> dict[str, Any]:
    return {
        "name": HEADER,
        "in": "header",
        "required": False,
        "description": "A repeated request with the same key gets the first answer.",
        "schema": {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY},
    }
