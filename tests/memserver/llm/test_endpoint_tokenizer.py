"""Counting by an endpoint's /tokenize, which may answer anything; over a real socket."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from memserver.llm import endpoint_tokenizer
from memserver.llm.endpoint_tokenizer import WORTH, EndpointOrEstimate
from memserver.llm.estimate import estimate
from memserver.openai_http.endpoint import Endpoint
from tests.support.http_app import Current

Answer = Callable[[dict[str, Any]], Response]
SECONDS = 0.5
TEXTS = ["The user likes sushi.", "And tea, in the afternoon."]


def tokens_of(text: str) -> int:
    """As no estimate has it."""
    return len(text) // 2


def vllm(asked: dict[str, Any]) -> Response:
    if "prompt" not in asked:
        return JSONResponse({"error": {"message": "Field required", "code": 400}}, 400)
    count = tokens_of(asked["prompt"])
    return JSONResponse({"count": count, "tokens": [1] * count, "max_model_len": 4096})


def llama_cpp(asked: dict[str, Any]) -> Response:
    return JSONResponse({"tokens": [1] * tokens_of(asked.get("content", ""))})


def with_value(value: object, status: int = 200) -> Answer:
    return lambda _: JSONResponse(value, status)


NO_COUNTS: dict[str, Answer] = {
    "LM Studio": with_value({"error": "Unexpected endpoint or method. (POST /tokenize)"}),
    "no tokens": with_value({"tokens": []}),
    "none": with_value({"count": 0}),
    "less than none": with_value({"count": -1}),
    "a million": with_value({"count": 1_000_000}),
    "yes": with_value({"count": True}),
    "a text": with_value({"count": "12"}),
    "nothing": with_value({"count": None, "tokens": None}),
    "a list": with_value([{"id": 1, "text": "The"}]),
    "HTML": lambda _: HTMLResponse("<title>Sign in</title>"),
    "no content": lambda _: Response(status_code=204),
    **{
        f"{status}": with_value({"error": {"message": "No."}}, status)
        for status in (400, 401, 403, 404, 405, 422, 429, 500, 501, 502, 503)
    },
}


class Server:
    """Answers /tokenize as a test sets it, and knows what it was asked."""

    def __init__(self) -> None:
        self.answer: Answer = vllm
        self.asked: list[dict[str, Any]] = []
        self.hangs = False
        self.asked_while_hanging = asyncio.Event()

    async def tokenize(self, request: Request) -> Response:
        asked = json.loads(await request.body())
        self.asked.append(asked)
        if self.hangs:
            self.asked_while_hanging.set()
            await asyncio.Event().wait()
        return self.answer(asked)

    @property
    def texts(self) -> list[str]:
        return [asked.get("prompt") or asked["content"] for asked in self.asked]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def server(current: Current) -> Server:
    server = Server()
    current.app = Starlette(routes=[Route("/tokenize", server.tokenize, methods=["POST"])])
    return server


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def counter(
    server: Server, served: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[EndpointOrEstimate]:
    monkeypatch.setattr(endpoint_tokenizer, "SECONDS", SECONDS)
    made = EndpointOrEstimate(Endpoint(served), "m", clock=clock)
    yield made
    await made.aclose()


ESTIMATES = list(map(estimate, TEXTS))
COUNTS = list(map(tokens_of, TEXTS))


@pytest.mark.parametrize("answer", [vllm, llama_cpp])
async def test_the_forms_of_vllm_and_of_llama_cpp_both_count(
    counter: EndpointOrEstimate, server: Server, answer: Answer
) -> None:
    server.answer = answer
    assert await counter.count(TEXTS) == COUNTS
    assert counter.is_exact
    assert await counter.count([*TEXTS, "more"]) == [*COUNTS, tokens_of("more")]
    assert server.texts[-1] == "more"
    assert len(server.asked) <= 2 + len(TEXTS) + 1


@pytest.mark.parametrize("answer", NO_COUNTS.values(), ids=NO_COUNTS)
async def test_an_answer_without_a_count_is_none_and_is_asked_for_no_text(
    counter: EndpointOrEstimate,
    server: Server,
    answer: Answer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "memserver")
    server.answer = answer
    for _ in range(3):
        assert await counter.count(TEXTS) == ESTIMATES
    assert not counter.is_exact
    assert len(server.asked) <= 2
    assert not set(server.texts) & set(TEXTS)
    assert len(caplog.messages) == 1


async def test_a_hanging_one_is_waited_for_once_by_all_turns_together(
    counter: EndpointOrEstimate, server: Server, clock: Clock
) -> None:
    server.hangs = True
    counted = await asyncio.gather(*(counter.count(TEXTS) for _ in range(20)))
    assert counted == [ESTIMATES] * 20
    assert len(server.asked) == 1
    clock.now += WORTH * SECONDS - 1  # with the five seconds of a server nearly 600, a turn's time
    assert await counter.count(["another"]) == [estimate("another")]
    assert len(server.asked) == 1


async def test_one_that_fails_is_left_alone_for_longer_and_longer(
    counter: EndpointOrEstimate, server: Server, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "memserver")
    server.answer = NO_COUNTS["503"]
    tried = []
    for _ in range(3600):
        before = len(server.asked)
        await counter.count(TEXTS)
        if len(server.asked) > before:
            tried.append(clock.now)
        clock.now += 1
    pauses = [after - before for before, after in pairwise(tried)]
    assert pauses == [5, 10, 20, 40, 80, 160, 320, 640, 900, 900]
    assert len(caplog.messages) == 1


async def test_one_that_appears_later_counts_from_then_on(
    counter: EndpointOrEstimate, server: Server, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    server.answer = NO_COUNTS["404"]
    assert await counter.count(TEXTS) == ESTIMATES
    server.answer = vllm
    clock.now += 10
    assert await counter.count(TEXTS) == COUNTS
    assert counter.is_exact


async def test_one_that_disappears_is_not_taken_to_be_back_by_what_is_remembered(
    counter: EndpointOrEstimate, server: Server, clock: Clock
) -> None:
    assert await counter.count(TEXTS) == COUNTS
    server.answer = NO_COUNTS["LM Studio"]
    assert await counter.count(["new"]) == [estimate("new")]
    clock.now += 60
    assert await counter.count([*TEXTS, "more"]) == [*COUNTS, estimate("more")]
    assert await counter.count(TEXTS) == COUNTS
    assert not counter.is_exact


async def test_a_count_that_is_absurd_for_one_text_alone_is_not_taken(
    counter: EndpointOrEstimate, server: Server
) -> None:
    assert await counter.count(TEXTS) == COUNTS
    server.answer = with_value({"count": 10_000})
    assert await counter.count(["short"]) == [estimate("short")]


async def test_a_text_goes_nowhere_before_a_sentence_of_ours_was_counted(
    counter: EndpointOrEstimate, server: Server
) -> None:
    await counter.count(["my secret"])
    assert server.texts == [server.texts[0], "my secret"]
    assert "sentence" in server.texts[0]
