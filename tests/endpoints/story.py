"""The story that every provider has to serve: the whole server, two agents, one of them streamed."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from memserver.testing.scripted import ScriptedModel
from tests.endpoints.provider import Memory, Provider
from tests.endpoints.stub import KEY
from tests.support.server import OneDatabase, Server, serving

LONG = "Nothing of this matters much. " * 200
"""A quarter of the window that memserver assumes, as most tokenizers count."""
INVALID = "Your last"
"""How a note to the model on an invalid reply starts."""
Say = Callable[[Server, str, str], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a story went.

    Attributes:
        how: in what way the endpoint was asked at its end.
        refused: requests that were refused while the endpoint was new, by server and by model.
    """

    how: str
    refused: tuple[int, int, int]


async def play(provider: Provider, memory: Memory, url: str, database: OneDatabase) -> Outcome:
    """Play the story. Raises AssertionError where it goes another way."""
    story = _Story(provider, memory, url, database)
    async with story.serving() as server:
        await story.begin(server)
        first = await story.learn(server)
        await story.overflow(server)
        await story.is_ready(server)
        story.has_learnt(first)
    async with story.serving() as server:
        again = await story.go_on(server)
        other = await story.change_model(server)
        how = await story.asked_how(server)
        for agent in story.agents.values():
            notes = await _notes(server, agent)
            assert len(notes) <= provider.violations, notes[:3]
    return Outcome(how, (first, again - first, other - again))


class _Story:
    def __init__(self, provider: Provider, memory: Memory, url: str, database: OneDatabase) -> None:
        self._provider, self._memory, self._database = provider, memory, database
        self._url = f"{url}/{provider.slug}{provider.path}"
        self._said = 0
        self.agents: dict[Say, str] = {}

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Server]:
        """A server that knows nothing of the endpoint yet."""
        settings: dict[str, Any] = {
            "llm_base_url": self._url,
            "llm_api_key": KEY,
            "llm_model": self._provider.models[0],
            "llm_retries": 0,
            **self._provider.settings,
        }
        async with serving(self._database, ScriptedModel(), **settings) as server:
            yield server

    async def begin(self, server: Server) -> None:
        self.agents = {say: await server.create_agent() for say in (_whole, _streamed)}

    async def learn(self, server: Server) -> int:
        """A memory is written, a search made, and a turn fails; how often a request was refused."""
        await self._both(server, "Remember that Rex is my dog. My lantern is green.", "Noted")
        await self._both(server, "Look for what I said of the lantern.", "It is green")
        self._memory.failing = [self._provider.failure] * 9
        failed = await self._both(server, "This fails.", None)
        self._memory.failing = []
        assert all(code.startswith("model_") for code in failed), failed
        await self._both(server, "Hello again.")
        for agent in self.agents.values():
            kept = await server.get(f"{agent}/working-context")
            assert "Rex" in str(kept), kept
        return len(self._memory.refused)

    async def overflow(self, server: Server) -> None:
        """More is said than the window holds."""
        for _ in range(4):
            await self._both(server, LONG)
        await server.run_jobs()
        for agent in self.agents.values():
            context = await server.get(f"{agent}/context")
            assert context["queue"][0]["position"] > 1, "nothing was moved out of the queue"

    async def is_ready(self, server: Server) -> None:
        answer = await server.http.get("/v1/ready")
        assert answer.status_code == 200, answer.text

    async def go_on(self, server: Server) -> int:
        """After a restart; how often a request was refused until then."""
        await self._both(server, "Look for what I said of the lantern.", "It is green")
        refused = len(self._memory.refused)
        await self._both(server, "Hello again.")
        self.has_learnt(refused)
        return refused

    async def change_model(self, server: Server) -> int:
        """The agents have another model now; how often a request was refused until then."""
        for agent in self.agents.values():
            body = {"model": self._provider.models[1]}
            changed = await server.http.patch(f"/v1/agents/{agent}", json=body)
            assert changed.status_code == 200, changed.text
        await self._both(server, "Remember that Rex likes the sea.", "Noted")
        refused = len(self._memory.refused)
        await self._both(server, "Look for what I said of the lantern.", "It is green")
        self.has_learnt(refused)
        return refused

    def has_learnt(self, refused: int) -> None:
        """Nothing more was refused than so much."""
        assert len(self._memory.refused) == refused, self._memory.refused[refused:]

    async def asked_how(self, server: Server) -> str:
        """In what way the endpoint is asked."""
        [agent, _] = self.agents.values()
        model = (await server.get(f"{agent}/context"))["model"]
        unusual = [f"`{name}`: {json.dumps(value)}" for name, value in model["profile"].items()]
        return "; ".join([model["mode"], *unusual])

    async def _both(self, server: Server, text: str, expected: str | None = "") -> list[str]:
        """Say it to both agents; they answer alike, by default with the number of what was said."""
        self._said += 1
        answers = [
            await say(server, agent, f"#{self._said} {text}") for say, agent in self.agents.items()
        ]
        if expected is not None:
            wanted = expected or f"Answer {self._said}"
            assert answers == [wanted] * 2, (text[:40], answers, self._memory.refused[-3:])
        return answers


async def _whole(server: Server, agent: str, text: str) -> str:
    """What the agent says, or the error's code and words."""
    answer = await server.http.post(f"/v1/agents/{agent}/messages", json={"text": text})
    body = answer.json()
    return body["text"] if answer.status_code == 200 else _failure(body["error"])


async def _streamed(server: Server, agent: str, text: str) -> str:
    """The same, streamed; the deltas of a message are what it has at the end."""
    events = await server.events(agent, text)
    errors = [data["error"] for kind, data in events if kind == "error"]
    if errors:
        return _failure(errors[0])
    said = "\n\n".join(data["text"] for kind, data in events if kind == "message")
    deltas = "".join(data["text"] for kind, data in events if kind == "message_delta")
    assert deltas in {"", said}, (deltas, said)
    return said


def _failure(error: dict[str, Any]) -> str:
    return f"{error['code']}: {error['message']} {error['hint']}"


async def _notes(server: Server, agent: str) -> list[str]:
    """What the agent read of its invalid replies."""
    context = await server.get(f"{agent}/context")
    texts = [each["text"] for each in context["queue"] if each["role"] == "system"]
    return [text for text in texts if text.startswith(INVALID)]
