"""Agents whose queue is about to be compacted, and what is seen of their prompts."""

import asyncio
from collections.abc import Sequence
from typing import Any

from memserver.llm.base import TextSink, Written
from memserver.messages import PromptMessage, ToolSpec
from memserver.testing.scripted import Call, ScriptedModel, say
from tests.support.server import Server

WINDOW = 2600
RESERVED = 200
JOBS = """SELECT args -> 'args' ->> 'agent_id' FROM procrastinate_jobs
    WHERE status = 'todo' AND task_name = 'compact'"""


def chat(prompt: Sequence[PromptMessage], _: Sequence[ToolSpec]) -> Call:
    return say("I see.", thought="I listen.")


async def fill(server: Server, agent: str) -> None:
    """Past messages up to a little above the target, below the window."""
    used = (await server.get(f"{agent}/context"))["used"]
    goal = 0.92 * (WINDOW - RESERVED)
    each = 20 + 2 + 4  # words, time, template
    past = [
        {"role": "user", "text": f"past{number} {'word ' * 19}"}
        for number in range(int((goal - used) / each))
    ]
    done = await server.http.post(f"/v1/agents/{agent}/messages/import", json={"messages": past})
    assert done.status_code == 200


async def talk_until_queued(server: Server, agent: str) -> None:
    """Until a compaction waits."""
    await fill(server, agent)
    await server.say(agent, "Hello.")
    assert server.rows(JOBS) == [(agent,)]


class Writer(ScriptedModel):
    """Its first summary comes when it is let go."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()

    async def write(
        self, prompt: Sequence[PromptMessage], *, max_tokens: int, on_text: TextSink | None = None
    ) -> Written:
        first = not self.writes
        answer = await super().write(prompt, max_tokens=max_tokens)
        if first:
            self.asked.set()
            await self.go_on.wait()
        return answer


def of_prompt(prompt: Sequence[PromptMessage]) -> str:
    return "\n".join(f"{each.text} {each.call}" for each in prompt)


async def positions(server: Server, agent: str) -> list[int]:
    page = await server.get(f"{agent}/messages", order="asc")
    return [each["position"] for each in page["items"]]
