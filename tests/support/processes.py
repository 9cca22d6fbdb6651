"""Real server processes for tests, their logs printed at the end: pytest shows them when a test fails."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import psycopg

from memserver.messages import PromptMessage, ToolSpec
from memserver.testing.scripted import Held, Step, say
from memserver.testing.scripted_rules import last_user_text
from memserver.testing.scripted_server import create_scripted_app
from tests.support.http_app import serving
from tests.support.server import OneDatabase
from tests.support.servers import (
    ServerProcess,
    Settings,
    memserver_command,
    plain_environment,
    settings_for,
    starting_memserver,
    wait_for,
)

DEADLINE = 60
"""Seconds after which what should come is taken not to come."""


CONTEXT_WINDOW = 100_000
"""So large that no turn is about memory pressure."""


@contextmanager
def server(
    folder: Path, settings: Settings, *options: str, port: int | None = None
) -> Iterator[ServerProcess]:
    """`memserver serve`, answering."""
    with starting_memserver(folder, settings, *options, port=port) as process:
        try:
            process.wait_until_healthy("/v1/health", DEADLINE)
            yield process
        finally:
            show(f"memserver on port {process.port}", process.log_text())


def command(folder: Path, settings: Settings, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A `memserver` command, run to its end."""
    done = subprocess.run(
        [memserver_command(), *arguments],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        cwd=folder,
        env=plain_environment(folder, settings),
        timeout=DEADLINE,
    )
    show(f"memserver {' '.join(arguments)}", done.stdout + done.stderr)
    return done


def show(name: str, log: str) -> None:
    """Print for a reader of a test that fails."""
    sys.stdout.write(f"--- {name} printed:\n{log}\n")


@dataclass(frozen=True)
class Endpoint:
    """A model that is served in the test's process."""

    url: str


@dataclass
class HoldingModel:
    """A model that keeps its first answer to itself, and numbers all it gives.

    The answers are made in the server's thread; `asked` and `given` only ever grow.
    """

    asked: list[str] = field(default_factory=list)
    given: list[str] = field(default_factory=list)
    url: str = ""
    _let_go: Callable[[], object] = lambda: None

    def __call__(self, prompt: Sequence[PromptMessage], tools: Sequence[ToolSpec]) -> Step:
        text = last_user_text(prompt)
        self.asked.append(text)
        if len(self.asked) == 1:
            held = asyncio.Event()
            self._let_go = partial(asyncio.get_running_loop().call_soon_threadsafe, held.set)
            return Held(say("too late"), held)
        self.given.append(f"{len(self.asked)}: {text}")
        return say(self.given[-1])

    def close(self) -> None:
        """Give the first answer after all, so that the server's thread can end."""
        self._let_go()


@contextmanager
def holding_model() -> Iterator[HoldingModel]:
    model = HoldingModel()
    with serving(create_scripted_app(model, context_window=CONTEXT_WINDOW)) as url:
        model.url = url
        yield model
        model.close()


@dataclass
class Client:
    """Talks to a server over connections of its own."""

    http: httpx2.AsyncClient

    async def create_agent(self) -> str:
        answer = await self.http.post("/v1/agents", json={})
        assert answer.status_code == 201, answer.text
        agent_id: str = answer.json()["id"]
        return agent_id

    async def post(self, agent_id: str, text: str) -> httpx2.Response:
        return await self.http.post(f"/v1/agents/{agent_id}/messages", json={"text": text})

    async def say(self, agent_id: str, text: str) -> str:
        answer = await self.post(agent_id, text)
        assert answer.status_code == 200, answer.text
        said: str = answer.json()["text"]
        return said

    async def history(self, agent_id: str) -> list[dict[str, Any]]:
        """Everything that was said, oldest first."""
        items: list[dict[str, Any]] = []
        after: int | None = 0
        while after is not None:
            answer = await self.http.get(
                f"/v1/agents/{agent_id}/messages",
                params={"after": after, "order": "asc", "limit": 100},
            )
            assert answer.status_code == 200, answer.text
            items += answer.json()["items"]
            after = answer.json()["next"]
        return items


@asynccontextmanager
async def client(process: ServerProcess) -> AsyncIterator[Client]:
    """A client that opens a connection for each request."""
    one_request_each = httpx2.Limits(max_connections=200, max_keepalive_connections=0)
    async with httpx2.AsyncClient(
        base_url=process.url, timeout=DEADLINE, limits=one_request_each
    ) as http:
        yield Client(http)


async def eventually(condition: Callable[[], object]) -> None:
    """Wait until the condition holds."""
    assert await asyncio.to_thread(wait_for, condition, DEADLINE)


def settings_on(database: OneDatabase, model_url: str, **more: object) -> Settings:
    """Settings for a test's database, which its owner may not use as the application role."""
    urls = {"database_url": database.owner, "database_app_url": database.app}
    return settings_for(model_url, **urls, **more)


def rows(database: OneDatabase, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(database.superuser) as connection:
        return connection.execute(query.encode()).fetchall()


def turn_states(database: OneDatabase) -> list[str]:
    """How every turn stands, in their order."""
    return [state for (state,) in rows(database, "SELECT state FROM turns ORDER BY turn")]


def lease_holder(database: OneDatabase) -> int:
    """The pid of the process that serves the agent, by the name that it gave itself."""
    [(owner,)] = rows(database, "SELECT lease_owner FROM agent_state")
    return int(owner.split("-")[-2])
