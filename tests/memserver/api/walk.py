"""Walks the OpenAPI document: every operation with a body and a query that its route takes.

So a test that walks covers a route that is added later, or fails until this knows what it wants.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.agent_files import closed, smallest

Json = dict[str, Any]
NO_ID = "00000000-0000-7000-8000-000000000000"
METHODS = ("post", "put", "patch", "get", "delete")
"""In the order in which a thing can be made, used and deleted."""


class Naming(dict[str, str]):
    """Ids of things, made up; tells which were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def __missing__(self, name: str) -> str:
        self.asked.append(name)
        return NO_ID


@dataclass(frozen=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    spec: Json
    document: Json

    @property
    def name(self) -> str:
        return f"{self.method.upper()} {self.path}"

    @property
    def needs_key(self) -> bool:
        return bool(self.spec["security"])

    @property
    def parameters(self) -> list[str]:
        return [each["name"] for each in self.spec.get("parameters", ()) if each["in"] == "path"]

    @property
    def queries(self) -> list[str]:
        return [each["name"] for each in self.spec.get("parameters", ()) if each["in"] == "query"]

    @property
    def ids(self) -> list[str]:
        """What a caller names things by: the path's parameters, and ids that the body must have."""
        named = Naming()
        if "application/json" in self._bodies:
            self.example_body(named)
        return [*self.parameters, *named.asked]

    def request(self, ids: Mapping[str, str]) -> Json:
        """Arguments of a client's `request`, with what the document says is needed."""
        query = {
            each["name"]: self._example(each["schema"], ids)
            for each in self.spec.get("parameters", ())
            if each["in"] == "query" and each.get("required")
        }
        arguments: Json = {
            "method": self.method.upper(),
            "url": self.path.format_map(ids),
            "params": query,
        }
        if "application/zip" in self._bodies:
            arguments["content"] = closed(smallest())
        elif "application/json" in self._bodies:
            arguments["json"] = self.example_body(ids)
        elif self._bodies:
            arguments["content"] = b"A text."
        return arguments

    def example_body(self, ids: Mapping[str, str]) -> Any:
        return self._example(self._bodies["application/json"]["schema"], ids)

    @property
    def _bodies(self) -> Json:
        content: Json = self.spec.get("requestBody", {}).get("content", {})
        return content

    def _example(self, schema: Json, ids: Mapping[str, str], name: str = "") -> Any:
        if "$ref" in schema:
            found = self.document
            for part in schema["$ref"].removeprefix("#/").split("/"):
                found = found[part]
            return self._example(found, ids, name)
        for key in ("examples", "enum"):
            if key in schema:
                return schema[key][0]
        for key in ("default", "const"):
            if key in schema:
                return schema[key]
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return self._example(schema[key][0], ids, name)
        return ids[name] if schema.get("format") == "uuid" else self._of_type(schema, ids)

    def _of_type(self, schema: Json, ids: Mapping[str, str]) -> Any:
        match schema["type"]:
            case "object":
                parts = {name: schema["properties"][name] for name in schema.get("required", ())}
                return {name: self._example(part, ids, name) for name, part in parts.items()}
            case "array":
                return [self._example(schema["items"], ids)] * schema.get("minItems", 0)
            case "string":
                return "example"
            case "integer" | "number":
                return int(schema.get("minimum", 1))
            case "boolean":
                return False
        raise AssertionError(f"What is an example of {schema}?")


def operations(document: Json) -> Iterator[Operation]:
    """All of them, by method as above and longer paths first."""
    paths = sorted(document["paths"], key=lambda path: (-path.count("/"), path))
    for method in METHODS:
        for path in paths:
            if method in document["paths"][path]:
                yield Operation(method, path, document["paths"][path][method], document)
