"""A standby takes over under load: what was acknowledged is there once, and nothing has to be done by hand."""

import asyncio
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from tests.support.nightly import NIGHTLY
from tests.support.postgres_pair import Node, Pair, postgres_pair
from tests.support.processes import DEADLINE, Endpoint, client, eventually, server
from tests.support.servers import ServerProcess, settings_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not NIGHTLY, reason="nightly: two starts of Postgres, under load"),
]

CLIENTS = 4
BEFORE, AFTER = 5, 5


class Talk:
    """Clients that say one thing after another, each until it is acknowledged."""

    def __init__(self, process: ServerProcess, agents: list[str]) -> None:
        self.said: Counter[str] = Counter()
        self.refused: set[tuple[int, str, bool]] = set()
        self._process = process
        self._agents = agents
        self._ending = asyncio.Event()

    async def run(self) -> None:
        await asyncio.gather(*map(self._client, self._agents))

    def end(self) -> None:
        self._ending.set()

    async def until(self, each: int) -> None:
        """Wait until every agent has answered so often."""
        agents = self._agents
        await eventually(lambda: min(self.said[agent] for agent in agents) >= each)

    async def _client(self, agent: str) -> None:
        async with client(self._process) as user:
            while not self._ending.is_set():
                await self._say(user.http, agent, f"m{self.said[agent]}")
                self.said[agent] += 1

    async def _say(self, http: httpx2.AsyncClient, agent: str, text: str) -> None:
        key = {"Idempotency-Key": f"{agent} {text}"}
        while True:
            answer = await http.post(
                f"/v1/agents/{agent}/messages", json={"text": text}, headers=key
            )
            if answer.status_code == 200:
                assert answer.json()["text"] == f"echo: {text}"
                return
            code = answer.json()["error"]["code"]
            self.refused.add((answer.status_code, code, "Retry-After" in answer.headers))


def killed(primary: Node) -> None:
    primary.kill()


def stands_still(primary: Node) -> None:
    primary.signal(signal.SIGSTOP)


@pytest.mark.parametrize("goes", [killed, stands_still])
async def test_a_standby_takes_over_and_nothing_acknowledged_is_lost_or_there_twice(
    folder: Path, echo: Endpoint, goes: Callable[[Node], None]
) -> None:
    with postgres_pair(folder) as pair:
        settings = settings_for(echo.url, **pair.urls(), lease_seconds=2)
        with server(folder, settings, "--workers", "2") as process:
            async with client(process) as user:
                agents = [await user.create_agent() for _ in range(CLIENTS)]
                talk = Talk(process, agents)
                talking = asyncio.create_task(talk.run())
                await talk.until(BEFORE)
                await asyncio.to_thread(goes, pair.primary)
                await asyncio.to_thread(pair.standby.promote)
                await talk.until(max(talk.said.values()) + AFTER)
                talk.end()
                await asyncio.wait_for(talking, DEADLINE)
                histories = {agent: await user.history(agent) for agent in agents}
                assert (await user.http.get("/v1/ready")).status_code == 200
        assert not left_over(pair)
    for agent, history in histories.items():
        said = [f"m{number}" for number in range(talk.said[agent])]
        expected = [part for text in said for part in (text, f"echo: {text}")]
        assert [each["text"] for each in history] == expected
    assert talk.refused <= {(503, "database_error", True)}


def left_over(pair: Pair) -> list[tuple[str, int]]:
    with pair.standby.connect() as connection:
        query = "SELECT state, count(*) FROM turns WHERE state <> 'done' GROUP BY state"
        return connection.execute(query).fetchall()
