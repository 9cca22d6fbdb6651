"""A server killed while a summary is being written: the queue is the old one, and another server continues."""

import contextlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx2
import pytest

from memserver.messages import PromptMessage
from memserver.testing.scripted import say
from memserver.testing.scripted_server import create_scripted_app
from tests.support.http_app import serving
from tests.support.processes import Client, client, eventually, rows, server, settings_on
from tests.support.server import OneDatabase

pytestmark = pytest.mark.slow

WINDOW = 2600
SUMMARIES = "SELECT text, until FROM summaries ORDER BY until"
START = "SELECT queue_start FROM agent_state"
UNFINISHED = """SELECT 1 FROM procrastinate_jobs
    WHERE status IN ('todo', 'doing') AND task_name = 'compact'"""


class Killing:
    """A summariser that has its server killed while that waits for the first summary."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.kill: Callable[[], None] = lambda: None
        self.count = 0

    def __call__(self, prompt: Sequence[PromptMessage]) -> str:
        self.count += 1
        if self.count == 1:
            self.kill()
            self.asked.set()
        return f"Notes {self.count}."


async def test_a_server_killed_in_a_compaction_leaves_the_queue_and_another_one_compacts(
    folder: Path, database: OneDatabase
) -> None:
    summariser = Killing()
    app = create_scripted_app(
        lambda _prompt, _tools: say("I see."), context_window=WINDOW, summary=summariser
    )
    with serving(app) as model:
        settings = settings_on(database, model, lease_seconds=2, llm_max_output_tokens=200)
        with server(folder, settings) as doomed:
            summariser.kill = doomed.kill
            async with client(doomed) as user:
                agent = await user.create_agent()
                reported = await talk_until(user, agent, summariser.asked)
        assert summariser.asked.is_set()
        assert rows(database, SUMMARIES) == []
        assert rows(database, START) == [(0,)]
        with server(folder, settings) as other:
            await eventually(lambda: rows(database, SUMMARIES))
            await eventually(lambda: not rows(database, UNFINISHED))
            [(text, until)] = rows(database, SUMMARIES)
            assert rows(database, START) == [(until,)]
            async with client(other) as user:
                assert await user.say(agent, "Are you there?") == "I see."
                history = await user.history(agent)
    assert text == "Notes 2."
    assert [item["text"] for item in history if item["role"] == "user"][: len(reported)] == reported


async def talk_until(user: Client, agent: str, asked: threading.Event) -> list[str]:
    """Talk until a summary is asked for; what was answered."""
    reported: list[str] = []
    with contextlib.suppress(httpx2.TransportError):  # the server is killed meanwhile
        while not asked.is_set() and len(reported) < 300:
            text = f"message {len(reported)} " + "word " * 20
            assert await user.say(agent, text) == "I see."
            reported.append(text)
    return reported
