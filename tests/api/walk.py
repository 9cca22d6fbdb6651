"""Walks the OpenAPI document: every operation with a body and a query that its route takes.

So a test that walks covers a route that is added later, or fails until this knows what it wants.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
METHODS = ("post", "put", "patch", "get", "delete")
"""In the order in which a thing can be made, used and deleted."""


@dataclass(frozen=True)
class Operation:
    """One method of one path; `ids` are the path's parameters that name somebody's thing."""

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

    def request(self, ids: Mapping[str, str], body: object = None) -> Json:
        """Arguments of a client's `request`, with what the document says is needed."""
        query = {
            each["name"]: self._example(each["schema"])
            for each in self.spec.get("parameters", ())
            if each["in"] == "query" and each.get("required")
        }
        arguments: Json = {
            "method": self.method.upper(),
            "url": self.path.format_map(ids),
            "params": query,
        }
        if "application/json" in self._bodies:
            arguments["json"] = self.example_body() if body is None else body
        elif self._bodies:
            arguments["content"] = b"A text."
        return arguments

    def example_body(self) -> Any:
        return self._example(self._bodies["application/json"]["schema"])

    @property
    def _bodies(self) -> Json:
        content: Json = self.spec.get("requestBody", {}).get("content", {})
        return content

    def _example(self, schema: Json) -> Any:
        if "$ref" in schema:
            found = self.document
            for part in schema["$ref"].removeprefix("#/").split("/"):
                found = found[part]
            return self._example(found)
        for key in ("examples", "enum"):
            if key in schema:
                return schema[key][0]
        for key in ("default", "const"):
            if key in schema:
                return schema[key]
        if "anyOf" in schema:
            return self._example(schema["anyOf"][0])
        return self._of_type(schema)

    def _of_type(self, schema: Json) -> Any:
        match schema["type"]:
            case "object":
                required = schema.get("required", ())
                return {name: self._example(schema["properties"][name]) for name in required}
            case "array":
                return [self._example(schema["items"])] * schema.get("minItems", 0)
            case "string":
                return "example"
            case "integer" | "number":
                return schema.get("minimum", 1)
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
