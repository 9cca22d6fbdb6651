"""Documents sent to a server, and what became of them."""

from pathlib import Path
from typing import Any

from tests.support.server import Server

FILES = Path(__file__).parents[1] / "data" / "documents"


MARKDOWN = b"""# Harbour

Boats need a lamp.

## Fees

Small boats pay three coins a night.
"""


LONG = "\n".join(f"Fact {number} is about thing{number}." for number in range(400)).encode()


async def post(server: Server, place: str, content: bytes, **query: Any) -> dict[str, Any]:
    answer = await server.http.post(f"/v1/{place}/documents", content=content, params=query)
    assert answer.status_code == 202, answer.text
    document: dict[str, Any] = answer.json()
    return document


async def ingest(server: Server, place: str, content: bytes, **query: Any) -> dict[str, Any]:
    document = await post(server, place, content, **query)
    await server.run_jobs()
    return await state(server, document["id"])


async def state(server: Server, document_id: str) -> dict[str, Any]:
    answer = await server.http.get(f"/v1/documents/{document_id}")
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


async def passages(server: Server, agent: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    page = await server.get(f"{agent}/archival", limit=100)
    items += page["items"]
    while page["next"]:
        page = await server.get(f"{agent}/archival", limit=100, after=page["next"])
        items += page["items"]
    return items


async def best(server: Server, agent: str, query: str) -> dict[str, Any]:
    found = await server.get(f"{agent}/archival/search", query=query)
    result: dict[str, Any] = found["items"][0]
    return result
