"""A request's path as the routes see it, and what may be done there."""

from collections.abc import Iterator

from fastapi.routing import iter_route_contexts
from starlette.routing import BaseRoute
from starlette.types import Scope


def route_path(scope: Scope) -> str:
    """A request's path as the routes know it: without what a proxy serves us below."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def allowed_methods(scope: Scope) -> str:
    """Those that the path takes, as a header lists them; empty: there is no such path."""
    found = sorted({method for methods in _methods(scope) for method in methods})
    if "GET" in found:
        found.append("HEAD")
    return ", ".join([*found, "OPTIONS"]) if found else ""


def _methods(scope: Scope) -> Iterator[set[str]]:
    path = route_path(scope)
    routes: list[BaseRoute] = scope["app"].routes
    for route in iter_route_contexts(routes):
        if route.path_regex.match(path):
            yield route.methods or set()
