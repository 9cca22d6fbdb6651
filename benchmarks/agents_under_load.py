"""Agents for load: their made-up pasts, what is said to them, and the server that keeps them.

The texts are random, so that two agents share no prompt prefix but the system prompt. What a model answers is held
to one send_message of one text: a turn is one request, all runs generate as much, and prompts don't depend on the model.
"""

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp

from benchmarks.load import Conversation, Request, Turn
from memserver.cli.local_engine import LOCAL_MODEL
from tests.support.servers import Settings, settings_for

_VOCABULARY = """
time year people way day man thing woman life child world school state family student group
country problem hand part place case week company system program question work number night
point home water room mother area money story fact month lot right study book eye job word
business issue side kind head house service friend father power hour game line end member law
car city community name president team minute idea body information back parent face level
office door health person art war history party result change morning reason research girl guy
moment air teacher force education red green blue small large old
"""
WORDS = _VOCABULARY.split()
MESSAGE_WORDS = 60
PAST = datetime(2026, 2, 7, 9, 0, tzinfo=UTC)
AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class Answering:
    """How the model is held to what it answers.

    Attributes:
        model: what the endpoint calls it.
        characters: of each answer.
        tokenizer: path of its tokenizer.json; None counts through the endpoint.
        output_tokens: kept free for an answer.
    """

    model: str
    characters: int
    tokenizer: str | None = None
    output_tokens: int = 512

    def settings(self, model_url: str, **more: object) -> Settings:
        """The settings of `memserver serve` for its local model, with answers of this size."""
        message = {"const": _text(random.Random(0), self.characters)[: self.characters - 1] + "."}
        schema = LOCAL_MODEL["llm_schema"] | {
            "properties": {
                "tool": {"const": "send_message"},
                "arguments": {"properties": {"message": message}, "additionalProperties": False},
            }
        }
        settings: Settings = {
            **settings_for(model_url),
            **LOCAL_MODEL,
            "llm_model": self.model,
            "summary_method": "model",  # which is part of the load
            "pressure_alert": False,  # whose steps can't send a message, and come to one side more often
            "llm_body": json.dumps({"temperature": 0}),
            "llm_schema": json.dumps(schema),
            "llm_longest_text": self.characters,
            "llm_max_output_tokens": self.output_tokens,
            **more,
        }
        del settings["llm_context_window"]  # the endpoint says it
        if self.tokenizer is not None:
            settings["llm_tokenizer"] = self.tokenizer
        return settings


def past(number: int, messages: int) -> list[dict[str, str]]:
    """The past of one agent, for an import: the same for the same number."""
    words = random.Random(f"past {number}")
    return [
        {
            "role": "assistant" if place % 2 else "user",
            "text": _text(words),
            "created_at": (PAST + timedelta(minutes=place)).isoformat(),
        }
        for place in range(messages)
    ]


def said(number: int, turn: int, words: int = MESSAGE_WORDS) -> str:
    """What is said to one agent in one turn, with a mark by which a request tells where it belongs."""
    return f"Note {number}.{turn}: {_text(random.Random(f'said {number} {turn}'), words)}"


def talk(agent: str, number: int, turns: int, *, stream: bool) -> Conversation:
    """One conversation with memserver."""
    return [
        Turn((message(agent, said(number, turn), stream=stream),)) for turn in range(1, turns + 1)
    ]


def message(agent: str, text: str, *, stream: bool) -> Request:
    """A message to an agent."""
    body = json.dumps({"text": text, "stream": stream})
    return Request(f"/v1/agents/{agent}/messages", body.encode())


async def create_agents(
    url: str, numbers: Sequence[int], messages: int, options: dict[str, Any] | None = None
) -> list[str]:
    """Create one agent for each number and import its past.

    Raises:
        RuntimeError: the server refused one.
    """
    gate = asyncio.Semaphore(AT_ONCE)
    async with aiohttp.ClientSession(url) as session:

        async def create(number: int) -> str:
            async with gate:
                made = await call(session, "POST", "/v1/agents", {"options": options or {}})
                agent: str = made["id"]
                if messages:
                    path = f"/v1/agents/{agent}/messages/import"
                    await call(session, "POST", path, {"messages": past(number, messages)})
                return agent

        return await asyncio.gather(*(create(number) for number in numbers))


async def messages_for(url: str, tokens: int) -> int:
    """How many past messages make a prompt of about so many tokens.

    Raises:
        RuntimeError: the server refused.
    """
    sample = 10
    [empty], [some] = (
        await create_agents(url, [0], 0),
        await create_agents(url, [0], sample),
    )
    async with aiohttp.ClientSession(url) as session:
        least, more = [
            (await call(session, "GET", f"/v1/agents/{agent}/context"))["used"]
            for agent in (empty, some)
        ]
    fitting: float = (tokens - least) * sample / (more - least)
    return max(0, round(fitting))


async def call(
    session: aiohttp.ClientSession, method: str, path: str, body: object = None
) -> dict[str, Any]:
    """One JSON request. Raises RuntimeError where it is refused."""
    async with session.request(method, path, json=body) as response:
        if response.status not in {200, 201}:
            raise RuntimeError(f"{response.status} from {path}: {await response.text()}")
        answer: dict[str, Any] = await response.json()
        return answer


def _text(words: random.Random, count: int = MESSAGE_WORDS) -> str:
    return " ".join(words.choices(WORDS, k=count))
