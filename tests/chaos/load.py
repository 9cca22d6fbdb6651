"""Clients that post keyed messages without an end, and again with the same key until each is answered."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

import httpx2

from tests.chaos.world import COUNTED, World

PATIENCE_SECONDS = 20
"""How long one request is waited for, before it is sent again with its key."""
PAUSE_SECONDS = 0.25
GIVE_UP_SECONDS = 120


@dataclass
class Said:
    """One message: what it was, and how it went."""

    agent: str
    text: str
    answer: str | None = None
    seconds: float = 0.0
    tries: int = 0
    refusal: str = ""
    """The last answer that was no success."""


@dataclass
class Load:
    """All that was said."""

    messages: list[Said] = field(default_factory=list)
    _stopped: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        """Let every client finish the message that it is at."""
        self._stopped.set()

    @property
    def stopped(self) -> bool:
        """Whether nothing new is said."""
        return self._stopped.is_set()


async def make_agents(world: World, number: int) -> list[str]:
    """Agents that have the webhook as a tool; their ids."""
    async with httpx2.AsyncClient(base_url=world.services[0].url, timeout=30) as http:
        tool = {
            "kind": "webhook",
            "name": "count",
            "description": "Counts a text.",
            "url": world.webhook_url,
            "parameters": {
                "type": "object",
                "properties": {"text": {"type": "string"}},
                "required": ["text"],
            },
        }
        (await http.post("/v1/tools", json=tool)).raise_for_status()
        ids = []
        for place in range(number):
            made = await http.post("/v1/agents", json={"name": f"agent {place}"})
            made.raise_for_status()
            ids.append(str(made.json()["id"]))
            (await http.put(f"/v1/agents/{ids[-1]}/tools/count", json={})).raise_for_status()
        return ids


async def talk(load: Load, agent: str, urls: Sequence[str]) -> None:
    """One client: says something to one agent, over and over."""
    limits = httpx2.Limits(max_connections=2, max_keepalive_connections=1)
    async with httpx2.AsyncClient(timeout=PATIENCE_SECONDS, limits=limits) as http:
        for number in count(1):
            if load.stopped:
                return
            kind = COUNTED if number % 3 == 0 else "plain"
            said = Said(agent, f"{agent} says {number}, {kind}")
            load.messages.append(said)
            await _say(http, said, urls)


async def _say(http: httpx2.AsyncClient, said: Said, urls: Sequence[str]) -> None:
    start = time.monotonic()
    while said.answer is None and time.monotonic() - start < GIVE_UP_SECONDS:
        url = urls[said.tries % len(urls)]
        said.tries += 1
        try:
            answer = await http.post(
                f"{url}/v1/agents/{said.agent}/messages",
                json={"text": said.text},
                headers={"Idempotency-Key": said.text},
            )
        except httpx2.HTTPError as error:
            said.refusal = type(error).__name__
        else:
            if answer.status_code == 200:
                said.answer = answer.json()["text"]
                break
            said.refusal = answer.text[:300]
            if answer.status_code < 500 and answer.status_code not in {409, 429}:
                break
        await asyncio.sleep(PAUSE_SECONDS)
    said.seconds = time.monotonic() - start
