"""The contract of `Embedder`, kept by every embedder."""

import math
from collections.abc import AsyncIterator, Iterator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from memserver.embeddings.base import Embedder, Vector
from memserver.embeddings.batching import BatchingEmbedder
from memserver.embeddings.openai_compatible import OpenAICompatibleEmbedder, embedding_endpoint
from memserver.embeddings.sentence_transformers import SentenceTransformersEmbedder
from memserver.testing.hashing_embedder import HashingEmbedder
from tests.support.http_app import serving

HOSTILE = [
    "",
    " ",
    "\n\t",
    "\x00",
    "a\x00b",
    "\ud83d",
    "a\ude00b",
    "😀",
    "你好",
    "שלום",
    "!?",
    "word " * 50_000,
]


async def embeddings(request: Request) -> JSONResponse:
    asked = await request.json()
    if not all(text.strip() for text in asked["input"]):
        return JSONResponse({"error": {"message": "an input is blank"}}, 400)
    vectors = await HashingEmbedder(384).embed(asked["input"])
    data = [
        {"object": "embedding", "index": index, "embedding": [value * 7 for value in vector]}
        for index, vector in enumerate(vectors)
    ]
    return JSONResponse({"object": "list", "model": asked["model"], "data": data[::-1]})


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with serving(Starlette(routes=[Route("/v1/embeddings", embeddings, methods=["POST"])])) as url:
        yield f"{url}/v1"


@pytest.fixture(params=["hashing", "batching", "openai_compatible", "sentence_transformers"])
async def embedder(request: pytest.FixtureRequest, endpoint: str) -> AsyncIterator[Embedder]:
    made: Embedder
    match request.param:
        case "hashing":
            made = HashingEmbedder(384)
        case "batching":
            made = BatchingEmbedder(HashingEmbedder(384), batch_size=2)
        case "openai_compatible":
            made = await OpenAICompatibleEmbedder(embedding_endpoint(endpoint), "m").connected()
        case _:
            made = SentenceTransformersEmbedder()
    yield made
    await made.aclose()


def cosine(one: Vector, other: Vector) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


async def test_vectors_have_unit_length_and_the_stated_dimension(embedder: Embedder):
    vectors = await embedder.embed(["James likes sushi.", "hello", "x"])
    assert embedder.model
    assert [len(vector) for vector in vectors] == [embedder.dimension] * 3
    for vector in vectors:
        assert math.isclose(math.sqrt(cosine(vector, vector)), 1, abs_tol=1e-5)
        assert all(type(value) is float for value in vector)


async def test_vectors_come_in_the_order_of_their_texts_however_many_there_are(embedder: Embedder):
    texts = [f"text number {number}" for number in range(5)]
    together = await embedder.embed(texts)
    for text, vector in zip(texts, together, strict=True):
        (alone,) = await embedder.embed([text])
        assert math.isclose(cosine(alone, vector), 1, abs_tol=1e-4)


async def test_texts_that_share_words_lie_nearer_than_others(embedder: Embedder):
    query, near, far = await embedder.embed(
        ["her birthday is in February", "the birthday in February", "rust compiles crates fast"]
    )
    assert cosine(query, near) > cosine(query, far) + 0.2


async def test_a_text_that_fits_the_window_is_read_to_its_end(embedder: Embedder):
    def text(words: int, last: str) -> str:
        return " ".join([*(f"word{number}" for number in range(words)), last])

    words = 1
    while (await embedder.count_tokens([text(words, "zebras")]))[0] <= embedder.window:
        words += 1
    fits, other = text(words - 1, "zebras"), text(words - 1, "physics")
    assert max(await embedder.count_tokens([fits, other])) <= embedder.window
    vectors = await embedder.embed([fits, other])
    assert cosine(*vectors) < 0.9999


async def test_tokens_are_counted_for_any_text(embedder: Embedder):
    counts = await embedder.count_tokens(HOSTILE)
    assert len(counts) == len(HOSTILE)
    assert counts[0] <= min(counts)
    assert max(counts) == counts[-1] >= 50_000
    assert await embedder.count_tokens([]) == []


async def test_no_texts_give_no_vectors(embedder: Embedder):
    assert await embedder.embed([]) == []


async def test_no_text_crashes_it(embedder: Embedder):
    vectors = await embedder.embed(HOSTILE)
    assert len(vectors) == len(HOSTILE)
    for vector in vectors:
        assert math.isclose(cosine(vector, vector), 1, abs_tol=1e-5)


async def test_what_is_looked_for_is_embedded_as_a_text_is(embedder: Embedder):
    [stored] = await embedder.embed(["the cello"])
    assert math.isclose(cosine(await embedder.embed_query("the cello"), stored), 1, abs_tol=1e-5)
    assert embedder.batch_size >= 1
    assert f"{embedder.dimension} dimensions" in embedder.describe()


async def test_it_can_be_closed_twice(embedder: Embedder):
    await embedder.aclose()
    await embedder.aclose()


async def test_a_check_passes_when_it_can_embed(embedder: Embedder):
    await embedder.embed(["x"])
    await embedder.check()
