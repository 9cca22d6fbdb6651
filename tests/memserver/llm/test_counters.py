"""Each base model has one counter, which its adapters share; over a real socket."""

from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tokenizers import ByteLevelBPETokenizer

from memserver.llm.counters import Counters
from memserver.llm.estimate import estimate
from memserver.openai_http.endpoint import Endpoint
from tests.support.http_app import Current

TEXT = "How many tokens has this text?"


class Stub:
    """Lists what a test sets; /tokenize gives a number for each base model."""

    def __init__(self) -> None:
        self.cards: list[dict[str, Any]] | None = [
            {"id": "base"},
            {"id": "one", "parent": "base"},
            {"id": "two", "parent": "base"},
            {"id": "small"},
        ]
        self.counts: dict[str | None, int] = {None: 5, "base": 5, "small": 9}
        self.asked: list[str | None] = []
        self.listings = 0
        self.status = 200

    async def models(self, _: Request) -> Response:
        self.listings += 1
        if self.status != 200:
            return Response(status_code=self.status)
        return Response(status_code=404) if self.cards is None else JSONResponse(self.listed())

    def listed(self) -> dict[str, Any]:
        return {"data": self.cards}

    async def tokenize(self, request: Request) -> Response:
        asked = await request.json()
        model = asked.get("model")
        if asked["prompt"] == TEXT:
            self.asked.append(model)
        if model not in self.counts:
            reported = {"message": f"The model `{model}` does not exist.", "type": "NotFoundError"}
            return JSONResponse({"error": reported}, 404)
        return JSONResponse({"count": self.counts[model]})


@pytest.fixture
def stub() -> Stub:
    return Stub()


@pytest.fixture
def endpoint(stub: Stub, current: Current, served: str) -> Endpoint:
    current.app = Starlette(
        routes=[
            Route("/v1/models", stub.models),
            Route("/tokenize", stub.tokenize, methods=["POST"]),
        ]
    )
    return Endpoint(served)


async def counts(counters: Counters, *names: str | None) -> list[int]:
    return [(await counters.of(name).count([TEXT]))[0] for name in names]


@pytest.mark.parametrize("default", [None, "base", "one"])
async def test_adapters_of_one_base_are_counted_by_one_counter(
    endpoint: Endpoint, stub: Stub, default: str | None
) -> None:
    stub.counts["one"] = 5
    counters = Counters(endpoint, default=default, tokenizer=None)
    assert await counts(counters, None, "one", "two", "base", "two") == [5] * 5
    assert stub.asked == [default]
    assert await counts(counters, "small") == [9]
    await counters.aclose()


async def test_a_tokenizer_file_is_for_the_default_models_base_alone(
    endpoint: Endpoint, stub: Stub, tmp_path: Path
) -> None:
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator([TEXT] * 9, vocab_size=300)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    counters = Counters(endpoint, default="base", tokenizer=tmp_path)
    [by_file, adapter, other] = await counts(counters, None, "one", "small")
    assert by_file == adapter != 5
    assert other == 9
    assert stub.asked == ["small"]
    await counters.aclose()


async def test_until_an_adapter_is_loaded_the_default_models_counter_stands_in(
    endpoint: Endpoint, stub: Stub
) -> None:
    now = 0.0
    counters = Counters(endpoint, default=None, tokenizer=None, clock=lambda: now)
    late = counters.of("late")
    for _ in range(3):
        assert await late.count([TEXT]) == [5]
    assert stub.listings == 1
    assert stub.cards is not None
    stub.cards.append({"id": "late", "parent": "small"})
    now += 6
    assert await late.count([TEXT]) == [9]
    assert late.is_exact
    await late.count([TEXT])
    assert stub.listings == 2
    await counters.aclose()


async def test_where_models_are_not_listed_each_name_is_its_own_base(
    endpoint: Endpoint, stub: Stub
) -> None:
    stub.cards = None
    counters = Counters(endpoint, default="base", tokenizer=None)
    assert await counts(counters, "small", "base") == [9, 5]
    await counters.aclose()


async def test_without_an_endpoint_tokens_are_estimated() -> None:
    counters = Counters(
        Endpoint("http://127.0.0.1:9/v1", max_retries=0), default=None, tokenizer=None
    )
    assert await counts(counters, None, "one") == [estimate(TEXT)] * 2
    await counters.aclose()


async def test_a_missing_model_is_not_taken_for_a_missing_tokenize(
    endpoint: Endpoint, stub: Stub
) -> None:
    now = 0.0
    counters = Counters(endpoint, default="late", tokenizer=None, clock=lambda: now)
    counter = counters.of(None)
    assert await counter.count([TEXT]) == [estimate(TEXT)]
    stub.counts["late"] = 7
    now += 6
    assert await counter.count([TEXT]) == [7]
    await counters.aclose()


@pytest.mark.parametrize(("status", "count"), [(401, 5), (403, 9), (405, 9), (500, 9)])
async def test_a_list_of_models_that_is_refused_is_not_requested_at_each_count(
    endpoint: Endpoint, stub: Stub, status: int, count: int
) -> None:
    stub.status = status
    counters = Counters(endpoint, default=None, tokenizer=None, clock=lambda: 0.0)
    other = counters.of("other")
    for number in range(3):
        assert await other.count([f"{TEXT} {number}"]) == [count]
    assert stub.listings <= 2  # a retry
    await counters.aclose()
