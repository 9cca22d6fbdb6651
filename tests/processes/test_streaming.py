"""A turn as server-sent events, over a real socket."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.processes import (
    Endpoint,
    client,
    eventually,
    holding_model,
    server,
    settings_on,
    turn_states,
)
from tests.support.server import OneDatabase

pytestmark = pytest.mark.slow


async def events(answer: httpx2.Response) -> list[tuple[str, dict[str, Any]]]:
    found = []
    kind = ""
    async for line in answer.aiter_lines():
        if line.startswith("event: "):
            kind = line.removeprefix("event: ")
        elif line.startswith("data: "):
            found.append((kind, json.loads(line.removeprefix("data: "))))
    return found


async def test_the_text_streams_in_pieces_that_make_the_committed_message(
    folder: Path, database: OneDatabase, echo: Endpoint
) -> None:
    text = 'Über "Zitate", \\ und 🎂, und noch viel mehr Text dahinter.'
    with server(folder, settings_on(database, echo.url)) as process:
        async with client(process) as user:
            agent = await user.create_agent()
            body = {"text": text, "stream": True}
            url = f"/v1/agents/{agent}/messages"
            async with user.http.stream("POST", url, json=body) as answer:
                assert answer.headers["content-type"].startswith("text/event-stream")
                reported = await events(answer)
    pieces = [data["text"] for kind, data in reported if kind == "message_delta"]
    [message] = [data["text"] for kind, data in reported if kind == "message"]
    assert len(pieces) > 1
    assert "".join(pieces) == message == f"echo: {text}"
    assert reported[0] == ("turn_started", {"turn": 1})
    assert reported[-1] == ("turn_ended", {"turn": 1, "steps": 1, "stop_reason": "message_sent"})


async def test_a_client_that_leaves_does_not_lose_the_turn(
    folder: Path, database: OneDatabase
) -> None:
    with (
        holding_model() as model,
        server(folder, settings_on(database, model.url)) as process,
    ):
        async with client(process) as user:
            agent = await user.create_agent()
            body = {"text": "hello", "stream": True}
            url = f"/v1/agents/{agent}/messages"
            async with user.http.stream("POST", url, json=body) as answer:
                assert answer.status_code == 200
                await eventually(lambda: model.asked)
            model.close()
            await eventually(lambda: turn_states(database) == ["done"])
            history = await user.history(agent)
    assert [item["text"] for item in history] == ["hello", "too late"]
