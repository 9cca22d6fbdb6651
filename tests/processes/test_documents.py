"""A document survives the death of the process that takes it in, and its passages are stored once."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.holding_embedder import HoldingEmbedder
from tests.support.processes import (
    Client,
    Endpoint,
    client,
    command,
    eventually,
    rows,
    server,
    settings_on,
)
from tests.support.server import OneDatabase

pytestmark = pytest.mark.slow

FILES = Path(__file__).parents[1] / "data" / "documents"

RECORDS = 700
LONG = "\n".join(
    f'{{"text": "Fact {number} is about thing{number}."}}' for number in range(RECORDS)
)


async def post(user: Client, agent: str) -> dict[str, Any]:
    answer = await user.http.post(
        f"/v1/agents/{agent}/documents", content=LONG.encode(), params={"name": "facts.jsonl"}
    )
    assert answer.status_code == 202, answer.text
    document: dict[str, Any] = answer.json()
    return document


async def finished(database: OneDatabase, user: Client, document: dict[str, Any]) -> dict[str, Any]:
    unfinished = "SELECT 1 FROM documents WHERE state IN ('waiting', 'running')"
    await eventually(lambda: not rows(database, unfinished))
    answer = await user.http.get(f"/v1/documents/{document['id']}")
    found: dict[str, Any] = answer.json()
    return found


async def test_a_document_continues_where_it_stood_when_its_process_was_killed(
    folder: Path, database: OneDatabase, echo: Endpoint, embedder: HoldingEmbedder
) -> None:
    settings = settings_on(
        database, echo.url, embedding_base_url=embedder.url, lease_seconds=2, llm_timeout=5
    )
    with server(folder, settings) as doomed:
        async with client(doomed) as user:
            agent = await user.create_agent()
            document = await post(user, agent)
            assert await asyncio.to_thread(embedder.holds.wait, 60)
            await eventually(lambda: rows(database, "SELECT chunks_done FROM documents") != [(0,)])
            doomed.kill()
    [(done, total)] = rows(database, "SELECT chunks_done, chunks_total FROM documents")
    assert 0 < done < total == RECORDS
    assert rows(database, "SELECT count(*) FROM passages") == [(done,)]
    before = embedder.given
    embedder.let_go.set()
    with server(folder, settings) as other:
        async with client(other) as user:
            ended = await finished(database, user, document)
            found = (
                await user.http.get(
                    f"/v1/agents/{agent}/archival/search",
                    params={"query": "Fact 699 is about thing699."},
                )
            ).json()
    assert (ended["state"], ended["chunks_done"]) == ("done", RECORDS)
    assert found["total"] == RECORDS
    assert found["items"][0]["metadata"]["record"] == RECORDS
    texts = rows(database, "SELECT content FROM passages ORDER BY id")
    assert [text for (text,) in texts] == [
        f"Fact {number} is about thing{number}." for number in range(RECORDS)
    ]
    [(table,)] = rows(database, "SELECT vectors_table FROM collections")
    assert rows(database, f"SELECT count(*) FROM {table}") == [(RECORDS,)]
    assert embedder.given - before <= RECORDS - done + 128  # what was not stored, and a query


async def test_a_document_that_was_posted_is_there_though_the_process_is_killed_at_once(
    folder: Path, database: OneDatabase, echo: Endpoint, embedder: HoldingEmbedder
) -> None:
    embedder.let_go.set()
    settings = settings_on(
        database, echo.url, embedding_base_url=embedder.url, lease_seconds=2, jobs_at_once=0
    )
    with server(folder, settings) as doomed:
        async with client(doomed) as user:
            agent = await user.create_agent()
            document = await post(user, agent)
            doomed.kill()
    with server(folder, settings | {"jobs_at_once": 2}) as other:
        async with client(other) as user:
            ended = await finished(database, user, document)
    assert (ended["state"], ended["chunks_done"]) == ("done", RECORDS)


def test_files_are_sent_with_the_key_that_the_environment_has(
    folder: Path, database: OneDatabase, echo: Endpoint, embedder: HoldingEmbedder
) -> None:
    embedder.let_go.set()
    settings = settings_on(database, echo.url, embedding_base_url=embedder.url)
    key = command(folder, settings, "keys", "create", "me").stdout.strip()
    (folder / "good.md").write_text("# Title\n\nSome words.\n")
    with server(folder, settings) as process:
        auth = {"Authorization": f"Bearer {key}"}
        httpx2.post(f"{process.url}/v1/agents", json={"name": "sam"}, headers=auth)
        sent = ["ingest", "good.md", "--agent", "sam", "--url", process.url]
        without = command(folder, settings, *sent)
        taken = command(folder, {**settings, "api_key": key}, *sent)
    assert without.returncode == 1
    assert "The request has no API key." in without.stderr
    assert taken.returncode == 0, taken.stderr
    assert "1 stored." in taken.stdout
