"""At any window from 2,048 tokens up an agent answers, whoever counts: no false overflow, no false alert."""

import asyncio
import json
from collections.abc import Callable

import pytest
from starlette.responses import HTMLResponse, JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from memserver.llm import endpoint_tokenizer
from memserver.testing.scripted import Call, say
from memserver.testing.scripted_server import Abilities
from tests.support.model_endpoint import Endpoint, count_as_bpe, endpoint, serving_over_http
from tests.support.server import OneDatabase, Server

WINDOWS = (2048, 3000, 4096, 6000, 7000, 8192)
ALERTS = "SELECT count(*) FROM messages WHERE starts_with(content, 'Memory pressure')"
LONG = "Today we walked along the river to the old mill, and Anna told me of her bees. " * 3
NOTHING_THERE = JSONResponse({"error": {"message": "Not Found"}}, 404)


def sparse(text: str) -> int:
    """As a tokenizer with a large vocabulary counts."""
    return -(-len(text.encode()) // 5)


def dense(text: str) -> int:
    """As one with a small vocabulary: Mistral's of 32,000 tokens has .285 for each byte of tools."""
    return len(text.encode()) * 2 // 7


def indented(text: str) -> int:
    """As a template that shows tools in lines of their own, as Llama's does."""
    if text.startswith('[{"type": "function"'):
        text = json.dumps(json.loads(text), indent=4)
    return sparse(text) * 11 // 10


async def hanging(_: Scope, __: Receive, ___: Send) -> None:
    await asyncio.Event().wait()


TOKENIZE: dict[str, ASGIApp | None] = {
    "exact": None,
    "none": NOTHING_THERE,
    "LM Studio": JSONResponse({"error": "Unexpected endpoint or method. (POST /tokenize)"}),
    "no tokens": JSONResponse({"tokens": []}),
    "HTML": HTMLResponse("<html></html>"),
    "hanging": hanging,
}


def answer(_prompt: object, _tools: object) -> Call:
    return say("I see. Please go on, I would like to hear more.")


class Agents:
    """Agents of one server at one endpoint."""

    def __init__(self, server: Server, model: Endpoint) -> None:
        self.server = server
        self.model = model

    async def first_turn(self, window: int, output: int, *, streamed: bool) -> None:
        options = {"context_window": window, "max_output_tokens": output}
        agent = await self.server.create_agent(options=options)
        if streamed:
            _, last = (await self.server.events(agent, "Hello, how are you?"))[-1]
        else:
            last = await self.server.say(agent, "Hello, how are you?")
        assert last["stop_reason"] == "message_sent"
        assert self.model.limits[-1] >= 256
        [[prompt]] = self.server.rows("SELECT prompt_tokens FROM turns WHERE agent_id = %s", agent)
        assert prompt + self.model.limits[-1] <= window

    def check(self) -> None:
        """No prompt was refused, and no alert came."""
        assert self.model.refused == 0
        assert self.server.rows(ALERTS) == [(0,)]


async def every_window(agents: Agents) -> None:
    for window in WINDOWS:
        await agents.first_turn(window, 512, streamed=False)
        await agents.first_turn(window, 1024, streamed=True)
    agents.check()


@pytest.mark.parametrize("tokenize", TOKENIZE)
async def test_first_turns_neither_overflow_nor_raise_an_alert_whatever_tokenize_answers(
    database: OneDatabase, tokenize: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint_tokenizer, "SECONDS", 0.1)
    with endpoint(answer, abilities=Abilities(), context_window=100_000) as model:
        model.tokenize = TOKENIZE[tokenize]
        async with serving_over_http(database, model.url) as server:
            await every_window(Agents(server, model))
    asked = len([path for path, _ in model.statuses if path == "/tokenize"])
    assert tokenize == "exact" or asked <= 2


@pytest.mark.parametrize("count", [sparse, dense])
async def test_first_turns_neither_overflow_nor_raise_an_alert_whatever_the_model_counts(
    database: OneDatabase, count: Callable[[str], int]
) -> None:
    with endpoint(answer, count=count, context_window=100_000) as model:
        async with serving_over_http(database, model.url) as server:
            await every_window(Agents(server, model))


@pytest.mark.parametrize("count", [count_as_bpe, sparse, dense, indented])
async def test_the_smallest_window_has_room_for_a_conversation(
    database: OneDatabase, count: Callable[[str], int]
) -> None:
    with endpoint(answer, count=count, context_window=2048) as model:
        async with serving_over_http(database, model.url) as server:
            agent = await server.create_agent()
            for number in range(12):
                said = await server.say(agent, f"{LONG} {number}")
                assert said["stop_reason"] == "message_sent"
            context = await server.get(f"{agent}/context")
    assert model.refused <= 1
    assert context["window"] == 2048
    assert context["window"] - context["reserved"] - context["used"] >= 0


@pytest.mark.parametrize("count", [count_as_bpe, sparse, dense])
async def test_who_counts_may_change_in_an_agents_life_without_overflow_or_false_alert(
    database: OneDatabase, count: Callable[[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint_tokenizer, "_FIRST_PAUSE", 1e-9)
    capacity = 4096 - 512
    with endpoint(answer, abilities=Abilities(), count=count, context_window=4096) as model:
        async with serving_over_http(database, model.url) as server:
            agent, before = await server.create_agent(), 0
            for number in range(60):
                model.tokenize = NOTHING_THERE if number // 3 % 2 else None
                said = await server.say(agent, f"{LONG} {number}")
                if server.rows(ALERTS) != [(0,)]:
                    break
                before = said["usage"]["prompt_tokens"]
                assert before <= capacity
    assert model.refused == 0
    assert 0.55 * capacity <= before <= capacity


async def test_a_window_below_the_models_keeps_256_tokens_free_and_a_reply_may_have_what_the_prompt_leaves(
    database: OneDatabase,
) -> None:
    with endpoint(answer, context_window=8192) as model:
        async with serving_over_http(database, model.url, llm_max_output_tokens=1100) as server:
            reserved = []
            for window in (2048, 8000, None):
                agent = await server.create_agent(options={"context_window": window})
                await server.say(agent, "Hello, how are you?")
                reserved.append((await server.get(f"{agent}/context"))["reserved"])
                [[prompt]] = server.rows(
                    "SELECT prompt_tokens FROM turns WHERE agent_id = %s", agent
                )
                free = (window or 8192) - prompt
                assert reserved[-1] <= model.limits[-1] <= min(1100, free)
    assert reserved == [256, 1100 - 192, 1100]
