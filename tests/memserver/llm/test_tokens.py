"""Every token counter against one contract; the endpoint's over a real socket."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tokenizers import ByteLevelBPETokenizer

from memserver.errors import ModelUnavailable, SetupError
from memserver.llm.endpoint_tokenizer import EndpointTokenizer
from memserver.llm.tokens import Estimated, Remembered, TokenCounter
from memserver.openai_http.endpoint import Endpoint
from memserver.text import clean
from memserver.tokenizer_file import TokenizerFile
from tests.support.http_app import Current

HOSTILE = ["", " ", "\x00", "\ud83d", "a\ude00b", "😀", "你好", "שלום", "word " * 10_000]


class Stub:
    """vLLM's /tokenize, with four bytes in a token."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer: dict[str, object] | None = None

    async def tokenize(self, request: Request) -> Response:
        body = await request.json()
        assert body["add_special_tokens"] is False
        self.asked.append(body["prompt"])
        count = -(-len(body["prompt"].encode()) // 4)
        return JSONResponse(self.answer or {"count": count, "tokens": []})


@pytest.fixture
def stub() -> Stub:
    return Stub()


@pytest.fixture
def url(stub: Stub, current: Current, served: str) -> str:
    current.app = Starlette(routes=[Route("/tokenize", stub.tokenize, methods=["POST"])])
    return served


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model's folder with a small tokenizer that truncates and pads, which must not count."""
    path = tmp_path_factory.mktemp("model")
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(
        ["the user likes sushi and the user likes tea"] * 9, vocab_size=300
    )
    tokenizer.enable_truncation(5)
    tokenizer.enable_padding(length=5)
    tokenizer.save(str(path / "tokenizer.json"))
    return path


@pytest.fixture(params=["estimate", "file", "endpoint"])
async def counter(
    request: pytest.FixtureRequest, url: str, folder: Path
) -> AsyncIterator[TokenCounter]:
    made: TokenCounter
    match request.param:
        case "estimate":
            made = Estimated()
        case "file":
            made = TokenizerFile(folder)
        case _:
            made = EndpointTokenizer(Endpoint(url, max_retries=0), "m")
    yield made
    await made.aclose()


async def test_counts_come_in_the_order_of_the_texts_and_repeat(counter: TokenCounter):
    texts = ["the user", "", "the user likes sushi and tea", "the user"]
    counts = await counter.count(texts)
    assert counts[0] == counts[3]
    assert counts[1] == 0
    assert 0 < counts[0] < counts[2]
    assert await counter.count(texts) == counts


async def test_no_texts_have_no_counts(counter: TokenCounter):
    assert await counter.count([]) == []


async def test_no_text_crashes_it_and_the_bytes_are_a_bound(counter: TokenCounter):
    counts = await counter.count(HOSTILE)
    bounds = [len(clean(text).encode()) for text in HOSTILE]
    assert all(count <= bound for count, bound in zip(counts, bounds, strict=True))
    assert counts[-1] > 1000


async def test_a_longer_text_never_has_fewer_tokens(counter: TokenCounter):
    counts = await counter.count(["sushi " * length for length in range(1, 12)])
    assert counts == sorted(counts)


async def test_the_endpoint_is_asked_once_for_each_text(url: str, stub: Stub):
    counter = Remembered(EndpointTokenizer(Endpoint(url), "m"), texts=2)
    await counter.count(["a", "b", "a"])
    await counter.count(["b", "a"])
    _, *texts = stub.asked  # the first is a sentence of ours
    assert sorted(texts) == ["a", "b"]
    await counter.count(["c"])
    await counter.count(["a", "b"])
    _, *texts = stub.asked
    assert sorted(texts) == ["a", "b", "b", "c"]
    await counter.aclose()


async def test_what_another_count_drops_meanwhile_is_counted_all_the_same():
    class Slow(TokenCounter):
        def __init__(self) -> None:
            self.asked, self.go_on = asyncio.Event(), asyncio.Event()

        async def count(self, texts: Sequence[str]) -> list[int]:
            if "new" in texts:
                self.asked.set()
                await self.go_on.wait()
            return [len(text) for text in texts]

    inner = Slow()
    counter = Remembered(inner, texts=2)
    await counter.count(["known"])
    waiting = asyncio.create_task(counter.count(["known", "new"]))
    await inner.asked.wait()
    await counter.count(["a", "bb"])
    inner.go_on.set()
    assert await waiting == [5, 3]


async def test_more_texts_at_once_than_are_remembered_are_all_counted(url: str):
    counter = Remembered(EndpointTokenizer(Endpoint(url), "m"), texts=1)
    assert await counter.count(["a" * length for length in (4, 8, 12, 16)]) == [1, 2, 3, 4]
    await counter.aclose()


async def test_an_endpoint_without_counts_is_an_error(url: str, stub: Stub):
    stub.answer = {"tokens": []}
    counter = EndpointTokenizer(Endpoint(url), "m")
    with pytest.raises(ModelUnavailable):
        await counter.count(["a"])
    await counter.aclose()


@pytest.mark.parametrize("content", [None, "{}", "nonsense", '{"model": {"type": "Nope"}}'])
async def test_a_file_that_is_no_tokenizer_is_a_set_up_error(tmp_path: Path, content: str | None):
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(SetupError, match=r"tokenizer\.json") as raised:
        await TokenizerFile(tmp_path / "tokenizer.json").count(["a"])
    assert str(tmp_path) not in f"{raised.value.message} {raised.value.hint}"
