"""Endpoints that are unlike OpenAI's, each with the rules of providers: what is asked fits, and what comes is read."""

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import pytest

from memserver.embeddings.base import Vector
from memserver.embeddings.batch_size import BatchSize
from memserver.embeddings.batching import BatchingEmbedder
from memserver.embeddings.openai_compatible import OpenAICompatibleEmbedder, embedding_endpoint
from memserver.embeddings.profile import Additions
from memserver.errors import EmbedderUnfit, EmbeddingError, EmbeddingRejected
from memserver.testing.hashing_embedder import HashingEmbedder
from tests.support.embedding_endpoint import EmbeddingEndpoint, Form, Vectors, base64_of
from tests.support.http_app import Current

TEXTS = [f"text number {number}" for number in range(32)]


@pytest.fixture
def endpoint(current: Current) -> EmbeddingEndpoint:
    made = EmbeddingEndpoint()
    current.app = made.app
    return made


@pytest.fixture
async def embedder(served: str):
    made = OpenAICompatibleEmbedder(embedding_endpoint(served, max_retries=0), "m")
    yield made
    await made.aclose()


async def right(texts: Sequence[str], length: int = 16) -> list[Any]:
    """What a test expects: the vectors in the order of their texts, but for the precision that is sent."""
    return [
        pytest.approx(vector, abs=1e-6) for vector in await HashingEmbedder(length).embed(texts)
    ]


async def asking(served: str, dimension: int) -> list[Vector]:
    made = OpenAICompatibleEmbedder(
        embedding_endpoint(served, max_retries=0), "m", dimension=dimension
    )
    try:
        vectors = await made.embed(["one text"])
        return vectors + await made.embed(["another"])
    finally:
        await made.aclose()


# Dimensions


async def test_four_thousand_dimensions_work(endpoint: EmbeddingEndpoint, embedder):
    endpoint.natural = 4000
    assert (await embedder.connected()).dimension == 4000


async def test_more_dimensions_than_can_be_stored_are_refused_with_the_limit_and_the_remedy(
    endpoint: EmbeddingEndpoint, embedder
):
    endpoint.natural = 4096
    for _ in range(2):
        with pytest.raises(EmbedderUnfit, match=r"4096 dimensions; at most 4000") as refused:
            await embedder.check()
        assert "MEMSERVER_EMBEDDING_DIMENSION" in refused.value.hint
        assert "`dimensions`" in refused.value.hint
    assert embedder.dimension == 0


@pytest.mark.parametrize("natural", [4096, 3072, 64])
async def test_a_dimension_that_the_model_has_not_is_requested(
    endpoint: EmbeddingEndpoint, served: str, natural: int
):
    endpoint.natural = natural
    assert await asking(served, 1024) == await right(["one text", "another"], 1024)
    assert [body.get("dimensions") for body in endpoint.asked] == [None, 1024, 1024]


@pytest.mark.parametrize(("natural", "remedy"), [(4096, "at most 4000"), (3072, "=3072")])
@pytest.mark.parametrize(
    ("dimensions", "words"), [("refused", "does not support specifying"), ("ignored", "ignores")]
)
async def test_an_endpoint_that_gives_no_other_dimension_is_refused_and_nothing_is_cut_off(
    endpoint: EmbeddingEndpoint, served: str, dimensions, words: str, natural: int, remedy: str
):
    endpoint.natural, endpoint.dimensions = natural, dimensions
    with pytest.raises(EmbedderUnfit, match=f"{natural} dimensions instead of 1024") as refused:
        await asking(served, 1024)
    assert words in refused.value.message
    assert remedy in refused.value.hint
    assert ("at most 4000 can be stored" in refused.value.message) == (natural == 4096)


@pytest.mark.parametrize("dimensions", ["taken", "refused"])
async def test_a_dimension_that_the_model_has_anyway_is_not_requested(
    endpoint: EmbeddingEndpoint, served: str, dimensions
):
    endpoint.dimensions = dimensions
    assert await asking(served, 16) == await right(["one text", "another"])
    assert not any("dimensions" in body for body in endpoint.asked)


# Batches


@pytest.mark.parametrize("most", [1, 3, 10, 25])
@pytest.mark.parametrize(
    "refusal",
    [
        None,
        (400, {"error": {"message": "Value error, batch size is invalid", "code": "InvalidParameter"}}),
        (413, {"error": "batch size 32 > maximum allowed batch size 10", "error_type": "Validation"}),
        (422, {"detail": [{"loc": ["body", "input"], "msg": "List should have at most 10 items"}]}),
        (400, {}),
        (429, {"error": {"message": "Request too large for m on tokens per min (TPM)"}}),
        (500, {"error": {"message": "input is too large to process. increase the physical batch size"}}),
        (200, {"error": {"message": "at most 100 requests can be in one batch", "code": 400}}),
    ],
)  # fmt: skip
async def test_a_refused_batch_is_halved_until_it_is_taken_and_that_is_remembered(
    endpoint: EmbeddingEndpoint, embedder, most: int, refusal
):
    await embedder.check()
    endpoint.most_texts, endpoint.refusal = most, refusal
    assert await embedder.embed(TEXTS) == await right(TEXTS)
    assert most / 2 < embedder.batch_size <= most
    endpoint.asked.clear()
    assert await embedder.embed(TEXTS) == await right(TEXTS)
    assert max(endpoint.sizes) == embedder.batch_size


async def test_a_batch_with_too_many_tokens_is_halved_and_no_text_is_cut(
    endpoint: EmbeddingEndpoint, embedder
):
    endpoint.most_characters = 100
    assert await embedder.embed(TEXTS) == await right(TEXTS)
    assert {text for body in endpoint.asked for text in body["input"]} == set(TEXTS)
    assert embedder.batch_size == 4


async def test_an_endpoint_that_makes_one_vector_of_several_texts_gets_them_one_by_one(
    endpoint: EmbeddingEndpoint, embedder
):
    endpoint.form = lambda vectors: {"data": [{"index": 0, "embedding": vectors[0]}]}
    assert await embedder.embed(TEXTS[:5]) == await right(TEXTS[:5])
    assert embedder.batch_size == 1


async def test_the_setting_bounds_a_request_however_many_texts_there_are(
    endpoint: EmbeddingEndpoint, served: str
):
    made = OpenAICompatibleEmbedder(embedding_endpoint(served), "m", batch_size=5)
    assert await BatchingEmbedder(made).embed(TEXTS) == await right(TEXTS)
    assert max(endpoint.sizes) == 5
    await made.aclose()


async def test_a_text_that_is_refused_says_so_and_fails_no_other_and_makes_no_batch_smaller(
    endpoint: EmbeddingEndpoint, embedder
):
    endpoint.bad = "flag me"
    batching = BatchingEmbedder(embedder)
    first = asyncio.create_task(batching.embed(["first"]))
    await asyncio.sleep(0)
    requests = [["a", "b"], ["c", "flag me"], ["d"]]
    waiting = [asyncio.create_task(batching.embed(texts)) for texts in requests]
    good, bad, other = await asyncio.gather(*waiting, return_exceptions=True)
    assert good == await right(["a", "b"])
    assert other == await right(["d"])
    assert isinstance(bad, EmbeddingRejected)
    assert "The input was flagged." in bad.message
    assert bad.hint
    assert embedder.batch_size == 32
    await first


async def test_a_text_that_is_too_long_is_cut_alone_and_makes_no_batch_smaller(
    endpoint: EmbeddingEndpoint, embedder
):
    endpoint.longest = 100
    long = "word " * 100
    texts = [*TEXTS[:9], long, *TEXTS[9:]]
    vectors = await embedder.embed(texts)
    assert vectors[:9] + vectors[10:] == await right(TEXTS)
    cut = [text for body in endpoint.asked for text in body["input"] if text in long][-1]
    assert 75 <= len(cut) <= 100
    assert embedder.batch_size == 32


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "no"),
        (403, "no"),
        (404, "no"),
        (400, "API key not valid. Please pass a valid API key."),
        (400, "The model `m` does not exist."),
        (429, "You exceeded your current quota: insufficient_quota"),
    ],
)
async def test_an_endpoint_that_refuses_whatever_it_is_asked_is_asked_once(
    endpoint: EmbeddingEndpoint, embedder, status: int, words: str
):
    endpoint.down, endpoint.words = status, words
    asked = [BatchingEmbedder(embedder).embed(TEXTS[at : at + 4]) for at in range(0, 32, 4)]
    failed = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(error, EmbeddingRejected) for error in failed)
    assert len(endpoint.asked) == len(asked)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (429, "Too many requests"),
        (429, "Too many tokens, please wait before trying again."),
        (400, "The model is still loading"),
        (500, "no"),
        (503, "no"),
        (504, "The request took too long."),
    ],
)
async def test_a_failure_that_passes_is_no_refusal_and_halves_nothing(
    endpoint: EmbeddingEndpoint, embedder, status: int, words: str
):
    endpoint.down, endpoint.words = status, words
    with pytest.raises(EmbeddingError) as failed:
        await embedder.embed(TEXTS)
    assert not isinstance(failed.value, EmbeddingRejected)
    assert endpoint.sizes == [32]
    assert embedder.batch_size == 32


async def test_a_batch_that_takes_too_long_is_smaller_when_it_is_tried_again(
    endpoint: EmbeddingEndpoint, current: Current, served: str
):
    async def slow(scope, receive, send):
        await asyncio.Event().wait()

    made = OpenAICompatibleEmbedder(embedding_endpoint(served, timeout=0.05, max_retries=0), "m")
    current.app = slow
    for _ in range(2):
        with pytest.raises(EmbeddingError, match="in time"):
            await made.embed(TEXTS)
    assert made.batch_size == 8
    await made.aclose()


def test_a_batch_grows_again_after_many_that_were_taken_and_ever_later():
    batch = BatchSize(32)
    batch.refused(16)
    waits = []
    for _ in range(2):
        taken = 0
        while batch.now == 16:
            batch.taken(16)
            taken += 1
        waits.append(taken)
        batch.refused(16)
    assert waits[1] > waits[0] > 100
    batch.fall(4)
    for _ in range(10 * waits[1]):
        batch.taken(batch.now)
    assert batch.now == 32
    batch.fix(1)
    for _ in range(1000):
        batch.taken(1)
    assert batch.now == 1


# Forms of answers


def items(vectors: Vectors, **more: Any) -> dict[str, Any]:
    return {"data": [{"embedding": vector, **more} for vector in vectors]}


def numbered(vectors: Vectors) -> list[dict[str, Any]]:
    return [{"index": index, "embedding": each} for index, each in enumerate(vectors)]


FORMS: dict[str, Form] = {
    "base64": lambda vectors: {
        "data": [
            {"index": index, "embedding": base64_of(vector)} for index, vector in enumerate(vectors)
        ]
    },
    "reversed": lambda vectors: {"data": numbered(vectors)[::-1]},
    "index from 1": lambda vectors: {
        "data": [each | {"index": each["index"] + 1} for each in numbered(vectors)][::-1]
    },
    "index as text": lambda vectors: {
        "data": [each | {"index": str(each["index"])} for each in numbered(vectors)][::-1]
    },
    "no index": items,
    "index 0 for all": lambda vectors: items(vectors, index=0),
    "bare vectors": lambda vectors: {"data": list(vectors)},
    "bare base64": lambda vectors: {"data": [base64_of(vector) for vector in vectors]},
    "data in data": lambda vectors: {"data": {"data": numbered(vectors)}},
    "Ollama": lambda vectors: {"model": "m", "embeddings": list(vectors)},
    "Cohere": lambda vectors: {"id": "x", "embeddings": {"float": list(vectors)}},
    "DashScope": lambda vectors: {"output": {"embeddings": items(vectors)["data"]}},
    "Gemini": lambda vectors: {"embeddings": [{"values": vector} for vector in vectors]},
    "llama.cpp": lambda vectors: {
        "data": [
            {"index": index, "embedding": [vector]} for index, vector in enumerate(vectors)
        ]
    },
    "numbers as text": lambda vectors: items([[str(part) for part in each] for each in vectors]),  # type: ignore[misc]
    "long": lambda vectors: items([[part * 1e200 for part in vector] for vector in vectors]),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
async def test_vectors_are_read_in_whatever_form_they_come(
    endpoint: EmbeddingEndpoint, embedder, form: str
):
    endpoint.form = FORMS[form]
    assert await embedder.embed(TEXTS) == await right(TEXTS)
    assert await embedder.embed(["one"]) == await right(["one"])
    assert embedder.batch_size == 32


async def test_whole_numbers_are_read_as_they_are(endpoint: EmbeddingEndpoint, embedder):
    endpoint.form = lambda vectors: {"data": [{"index": 0, "embedding": [3, -4]}]}
    assert await embedder.embed(["x"]) == [[0.6, -0.8]]


@pytest.mark.parametrize(
    "broken",
    [
        {"data": [{"index": 0, "embedding": [1.0]}, {"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0]}]},
        {"data": [{"index": [], "embedding": [1.0]}, {"index": 1, "embedding": [1.0]}]},
        {"data": [{"index": 1e999, "embedding": [1.0]}, {"index": 1, "embedding": [1.0]}]},
        {"data": [{"index": 0, "embedding": [None, 1.0]}]},
        {"data": [{"index": 0, "embedding": [True, 1.0]}]},
        {"data": [{"index": 0, "embedding": "no base64"}]},
        {"data": [{"index": 0, "embedding": "QUJD"}]},
        {"data": [{"index": 0, "embedding": [10**400, 1]}]},
        {"data": [{"index": 0, "embedding": {"data": {}}}]},
        {"data": []},
        {"embeddings": {"uint3": [[1]]}},
        {"error": {"message": "Rate limit exceeded", "code": 429}},
        {"error": "Unexpected endpoint or method. (POST /v1/embeddings)"},
    ],
)  # fmt: skip
async def test_an_answer_that_can_not_be_read_is_an_error_in_plain_words(
    endpoint: EmbeddingEndpoint, embedder, broken
):
    endpoint.form = lambda vectors: broken
    with pytest.raises(EmbeddingError, match="embedding endpoint") as failed:
        await embedder.embed(["x"])
    if "error" in broken:
        assert "Rate limit exceeded" in failed.value.message or "POST" in failed.value.message


# Fields


@pytest.mark.parametrize("refusal", [None, (422, {}), (400, {"error": {"message": "Bad request"}})])
async def test_a_field_that_is_refused_is_left_out(endpoint: EmbeddingEndpoint, embedder, refusal):
    endpoint.refused, endpoint.refusal = {"encoding_format"}, refusal
    assert await embedder.embed(TEXTS) == await right(TEXTS)
    endpoint.asked.clear()
    assert await embedder.embed(TEXTS) == await right(TEXTS)
    assert not any("encoding_format" in body for body in endpoint.asked)
    assert endpoint.sizes == [32]
    assert "without `encoding_format`" in embedder.describe()


async def test_an_endpoint_that_takes_only_a_text_gets_each_by_itself(
    endpoint: EmbeddingEndpoint, embedder
):
    endpoint.only_text = True
    assert await embedder.embed(TEXTS[:4]) == await right(TEXTS[:4])
    endpoint.asked.clear()
    assert await embedder.embed(TEXTS[:4]) == await right(TEXTS[:4])
    assert [body["input"] for body in endpoint.asked] == TEXTS[:4]


async def test_an_endpoint_that_requests_an_input_type_learns_what_is_looked_for(
    endpoint: EmbeddingEndpoint, embedder
):
    endpoint.required = {"input_type"}
    batching = BatchingEmbedder(embedder)
    await batching.embed(["a passage"])
    await batching.embed_query("a question")
    assert [body.get("input_type") for body in endpoint.asked] == [None, "passage", "query"]


async def test_settings_add_to_bodies_and_texts_and_say_what_is_looked_for(
    endpoint: EmbeddingEndpoint, served: str
):
    additions = Additions(
        {"user": "me", "encoding_format": None}, {"task": "query"}, "passage: ", "query: "
    )
    made = BatchingEmbedder(
        OpenAICompatibleEmbedder(embedding_endpoint(served), "m", additions=additions)
    )
    [stored] = await made.embed(["the cello"])
    asked = await made.embed_query("the cello")
    await made.embed([""])
    assert endpoint.asked == [
        {"model": "m", "input": ["passage: the cello"], "user": "me"},
        {"model": "m", "input": ["query: the cello"], "user": "me", "task": "query"},
        {"model": "m", "input": ["passage: empty"], "user": "me"},
    ]
    assert stored != asked
    assert await made.count_tokens(["", "x"]) == [11, 12]
    await made.aclose()


async def test_queries_are_requested_with_passages_where_they_do_not_differ(
    endpoint: EmbeddingEndpoint, embedder
):
    batching = BatchingEmbedder(embedder)
    first = asyncio.create_task(batching.embed(["first"]))
    await asyncio.sleep(0)
    await asyncio.gather(first, batching.embed(["a"]), batching.embed_query("b"))
    assert endpoint.sizes == [1, 2]


@pytest.mark.parametrize("blank", ["", " ", "\n\t", "\u3000"])
async def test_a_blank_text_is_embedded_though_endpoints_refuse_it(
    endpoint: EmbeddingEndpoint, embedder, blank: str
):
    vectors = await embedder.embed(["before", blank, "after"])
    assert [vectors[0], vectors[2]] == await right(["before", "after"])
    assert math.isclose(math.hypot(*vectors[1]), 1)


@pytest.mark.parametrize(
    "models",
    [
        (404, {}),
        (403, {}),
        (405, {}),
        (500, {}),
        (200, []),
        (200, {"data": None}),
        (200, {"data": [3]}),
    ],
)
async def test_a_list_of_models_that_can_not_be_had_breaks_no_embedding(
    endpoint: EmbeddingEndpoint, embedder, models
):
    endpoint.models = models
    assert await embedder.count_tokens(["x"]) == [3]
    assert embedder.window == 512
    assert await embedder.embed(["x"]) == await right(["x"])
