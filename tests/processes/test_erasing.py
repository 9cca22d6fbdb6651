"""A server killed while it erases: all of it is there, or nothing; and a summary is written again by another server."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx2
import psycopg
import pytest

from memserver.messages import PromptMessage
from memserver.storage.erasure import NOTE
from memserver.testing.scripted import say
from memserver.testing.scripted_server import create_scripted_app
from tests.support.http_app import serving
from tests.support.processes import client, eventually, rows, server, settings_on
from tests.support.server import OneDatabase

pytestmark = pytest.mark.slow

WINDOW = 2600
WORD = "quarkmoth"
SUMMARIES = "SELECT outdated, text FROM summaries"
WAITING = """SELECT 1 FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'"""
HOLDING = f"""SELECT 1 FROM messages WHERE content LIKE '%%{WORD}%%'
    UNION ALL SELECT 2 FROM recall_blocks WHERE body LIKE '%%{WORD}%%'
    UNION ALL SELECT 3 FROM summaries WHERE text LIKE '%%{WORD}%%'"""


class Summariser:
    """Repeats the word where it reads it; has its server killed when it is first asked without it."""

    def __init__(self) -> None:
        self.kill: Callable[[], None] = lambda: None
        self.asked = threading.Event()

    def __call__(self, prompt: Sequence[PromptMessage]) -> str:
        if any(WORD in each.text for each in prompt):
            return f"They talked of {WORD}."
        if not self.asked.is_set():
            self.asked.set()
            self.kill()
        return "They talked of days."


async def test_a_killed_server_has_erased_all_or_nothing_and_another_writes_the_summary(
    folder: Path, database: OneDatabase
) -> None:
    summariser = Summariser()
    app = create_scripted_app(
        lambda _prompt, _tools: say("I see."), context_window=WINDOW, summary=summariser
    )
    with serving(app) as model:
        settings = settings_on(
            database, model, lease_seconds=2, llm_max_output_tokens=200, index_after_seconds=0
        )
        with server(folder, settings) as first:
            async with client(first) as user:
                agent = await user.create_agent()
                await user.say(agent, f"My password is {WORD}.")
                for number in range(300):
                    if rows(database, SUMMARIES):
                        break
                    await user.say(agent, f"message {number} " + "word " * 20)
                await eventually(lambda: len(rows(database, HOLDING)) == 3)
                url = f"/v1/agents/{agent}/turns/1"
                with psycopg.connect(database.superuser) as other:  # holds what is erased last
                    other.execute("SELECT 1 FROM turns WHERE turn = 1 FOR UPDATE")
                    deleting = asyncio.create_task(user.http.delete(url))
                    await eventually(lambda: rows(database, WAITING))
                    first.kill()
                    with pytest.raises(httpx2.TransportError):
                        await deleting
        await eventually(lambda: not rows(database, WAITING))
        assert len(rows(database, HOLDING)) == 3
        with server(folder, settings) as second:
            summariser.kill = second.kill
            async with client(second) as user:
                with contextlib.suppress(httpx2.TransportError):  # killed as soon as it is done
                    assert (await user.http.delete(url)).json()["rewrites_summary"]
            await eventually(summariser.asked.is_set)
        assert rows(database, HOLDING) == []
        with server(folder, settings) as third:
            await eventually(lambda: rows(database, SUMMARIES)[0][0] is False)
            async with client(third) as user:
                assert await user.say(agent, "Are you there?") == "I see."
    assert rows(database, SUMMARIES) == [(False, f"They talked of days.\n\n{NOTE}")]
    assert rows(database, HOLDING) == []
