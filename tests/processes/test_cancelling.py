"""A turn is cancelled by another process than the one that runs it, which may be dead."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.support.nightly import NIGHTLY
from tests.support.processes import (
    client,
    eventually,
    holding_model,
    lease_holder,
    rows,
    server,
    settings_on,
)
from tests.support.server import OneDatabase

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("killed", ["before", "after"] if NIGHTLY else ["before"])
async def test_a_turn_whose_process_is_killed_around_its_cancelling_is_cancelled_once(
    folder: Path, database: OneDatabase, killed: str
) -> None:
    with holding_model() as model:
        settings = settings_on(database, model.url, lease_seconds=300)
        with server(folder, settings) as one, server(folder, settings) as two:
            async with client(one) as there, client(two) as here:
                agent = await here.create_agent()
                asking = asyncio.create_task(there.post(agent, "Write a novel."))
                await eventually(lambda: model.asked)
                assert lease_holder(database) == one.pid
                if killed == "before":
                    os.kill(one.pid, signal.SIGKILL)
                path = f"/v1/agents/{agent}/turns/1/cancel"
                answers = [await here.http.post(path) for _ in range(2)]
                if killed == "after":
                    os.kill(one.pid, signal.SIGKILL)
                await asyncio.gather(asking, return_exceptions=True)
                # Nobody waits for a dead process's lease, which has minutes left.
                assert await here.say(agent, "And now?") == "2: And now?"
                history = await here.history(agent)
    assert [each.status_code for each in answers] == [200, 200]
    assert answers[0].json()["stop_reason"] == answers[1].json()["stop_reason"] == "cancelled"
    assert [each["text"] for each in history] == ["Write a novel.", "And now?", "2: And now?"]
    turns = rows(database, "SELECT state, stop_reason FROM turns ORDER BY turn")
    assert turns == [("done", "cancelled"), ("done", "message_sent")]
