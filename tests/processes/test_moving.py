"""Agents move by the command line; an import whose process dies leaves nothing."""

import asyncio
from pathlib import Path

import httpx2
import psycopg
import pytest

from tests.support.agent_files import closed, opened, with_messages
from tests.support.holding_embedder import HoldingEmbedder
from tests.support.processes import (
    DEADLINE,
    Endpoint,
    command,
    eventually,
    rows,
    server,
    settings_on,
)
from tests.support.server import OneDatabase
from tests.support.servers import ServerProcess, Settings

pytestmark = pytest.mark.slow


async def test_an_import_whose_process_is_killed_leaves_nothing_and_is_done_when_it_is_repeated(
    folder: Path, database: OneDatabase, echo: Endpoint, embedder: HoldingEmbedder
) -> None:
    embedder.let_go.set()
    settings = settings_on(database, echo.url, embedding_base_url=embedder.url, lease_seconds=2)
    content = closed(with_messages(5_000, 10))
    key = {"Idempotency-Key": "once"}

    async def post(process: ServerProcess) -> httpx2.Response:
        async with httpx2.AsyncClient(base_url=process.url, timeout=DEADLINE) as http:
            return await http.post("/v1/agents/import", content=content, headers=key)

    with server(folder, settings) as doomed, psycopg.connect(database.superuser) as holding:
        holding.execute("LOCK TABLE passages IN EXCLUSIVE MODE")  # the last that is written
        importing = asyncio.create_task(post(doomed))
        stuck = "SELECT 1 FROM pg_locks WHERE relation = 'passages'::regclass AND NOT granted"
        await eventually(lambda: rows(database, stuck))
        assert rows(database, "SELECT count(*) FROM agents") == [(0,)]
        doomed.kill()
        with pytest.raises(httpx2.TransportError):
            await importing
    await eventually(lambda: not rows(database, stuck))
    for table in ("agents", "messages", "turns", "sections", "collections", "passages"):
        assert rows(database, f"SELECT count(*) FROM {table}") == [(0,)]
    with server(folder, settings) as other:
        answer = await post(other)
    assert answer.status_code == 201, answer.text
    assert rows(database, "SELECT count(*) FROM messages") == [(5_000,)]
    assert rows(database, "SELECT count(*) FROM agents") == [(1,)]


def test_agents_are_written_to_files_and_made_of_them_by_the_command_line(
    folder: Path, database: OneDatabase, echo: Endpoint, embedder: HoldingEmbedder
) -> None:
    embedder.let_go.set()
    settings: Settings = settings_on(database, echo.url, embedding_base_url=embedder.url)
    (folder / "in.zip").write_bytes(closed(with_messages(500, 3)))
    (folder / "cut.zip").write_bytes(closed(with_messages(500, 3))[:-30])
    (folder / "chats.json").write_text('[{"role": "user", "content": "Hi."}]', encoding="utf-8")
    with server(folder, settings) as process:
        at = ["--url", process.url]
        made = command(folder, settings, "import", "in.zip", "--name", "sam", *at)
        out = command(folder, settings, "export", "sam", "out.zip", "--vectors", *at)
        twice = command(folder, settings, "import", "out.zip", *at)
        cut = command(folder, settings, "import", "cut.zip", "--name", "b", *at)
        nobody = command(folder, settings, "export", "who", "who.zip", *at)
        into = command(folder, settings, "import", "chats.json", "--into", "sam", *at)
        absent = command(folder, settings, "import", "absent.zip", *at)
    gone = command(folder, settings, "import", "in.zip", *at)
    assert made.returncode == 0, made.stderr
    assert made.stdout.endswith("500 messages, 3 passages\n")
    assert into.returncode == 0, into.stderr
    assert "1 messages" in into.stdout
    assert "not carried: message: Have no time" in into.stdout
    assert out.returncode == 0, out.stderr
    values = opened((folder / "out.zip").read_bytes())
    assert [each["text"] for each in values["messages.jsonl"]] == [
        f"message {n}" for n in range(500)
    ]
    assert all(each["vector"] for each in values["passages.jsonl"])
    for done, text in (
        (twice, "There is an agent of this name already."),
        (cut, "The file is damaged, or its end is missing."),
        (nobody, "There is no agent 'who'"),
        (absent, "absent.zip: No such file or directory."),
        (gone, "No memserver answers at"),
    ):
        assert done.returncode == 1
        assert text in done.stderr
    assert not list(folder.glob("who.zip*"))
    assert rows(database, "SELECT count(*) FROM agents") == [(1,)]
