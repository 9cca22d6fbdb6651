"""What tests of collections ask a server for."""

from collections.abc import Mapping
from typing import Any

from tests.support.server import Server


async def make(server: Server, name: str = "library", **fields: Any) -> str:
    answer = await server.http.post("/v1/collections", json={"name": name, **fields})
    assert answer.status_code == 201, answer.text
    collection: str = answer.json()["id"]
    return collection


async def fill(server: Server, collection: str, *passages: Mapping[str, Any]) -> list[str]:
    url = f"/v1/collections/{collection}/passages"
    answer = await server.http.post(url, json={"passages": passages})
    assert answer.status_code == 201, answer.text
    return [item["id"] for item in answer.json()["items"]]


async def ask(server: Server, path: str, **query: Any) -> dict[str, Any]:
    answer = await server.http.get(f"/v1/{path}", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def texts(found: dict[str, Any]) -> list[str]:
    return [item["text"] for item in found["items"]]
