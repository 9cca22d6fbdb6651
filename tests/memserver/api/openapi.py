"""Reads the OpenAPI document: its operations, what they take and answer, and which of them list."""

import re
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]
JSON = "application/json"
LIST = ("after", "limit", "order")
"""What every list takes."""
SEARCHES = re.compile(r"/search$")


def operations(document: Json) -> Iterator[tuple[str, str, str, Json]]:
    """Name, method, path and specification of each."""
    for path, item in document["paths"].items():
        for method, spec in item.items():
            yield f"{method.upper()} {path}", method, path, spec


def ours(document: Json) -> Iterator[tuple[str, str, str, Json]]:
    for each in operations(document):
        if each[3]["tags"] != ["OpenAI's API"]:
            yield each


def resolved(schema: Json, document: Json) -> Json:
    while "$ref" in schema:
        found: Any = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        schema = found
    return schema


def parameters(spec: Json, where: str) -> dict[str, Json]:
    return {each["name"]: each for each in spec.get("parameters", ()) if each["in"] == where}


def answers(spec: Json) -> Iterator[tuple[str, Json]]:
    """The JSON of each status."""
    for status, response in spec["responses"].items():
        if JSON in response.get("content", {}):
            yield status, response["content"][JSON]


def lists(document: Json) -> Iterator[tuple[str, Json, Json]]:
    """Each list, with the schema of its page. A GET that answers with `items` is one, unless it searches."""
    for name, method, path, spec in ours(document):
        if method == "get" and not SEARCHES.search(path):
            for status, content in answers(spec):
                page = resolved(content["schema"], document)
                if status == "200" and "items" in page.get("properties", {}):
                    yield name, spec, page
