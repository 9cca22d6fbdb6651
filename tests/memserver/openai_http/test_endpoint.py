"""Every failure of an endpoint is an error of memserver's, and says what to do."""

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp.http import HttpProcessingError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import (
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from memserver.errors import (
    ContextOverflow,
    MemserverError,
    ModelAnswerTooLarge,
    ModelError,
    ModelNotFound,
    ModelRejected,
    ModelTimeout,
    ModelUnavailable,
    SetupError,
)
from memserver.openai_http.client import EndpointClient
from memserver.openai_http.endpoint import Endpoint
from memserver.openai_http.errors import StatusError
from memserver.openai_http.translation import translate
from tests.support.http_app import Current


def below(kind: type[Exception]) -> set[type[Exception]]:
    return {kind}.union(*(below(lower) for lower in kind.__subclasses__()))


ERRORS = sorted(
    below(aiohttp.ClientError)
    | below(HttpProcessingError)
    | below(ssl.SSLError)
    | {OSError, ConnectionResetError, TimeoutError, UnicodeError},
    key=lambda kind: kind.__name__,
)


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
async def test_every_error_of_the_http_library_is_translated(
    kind: type[Exception], monkeypatch: pytest.MonkeyPatch
):
    error = kind.__new__(kind)  # as it is caught: its constructor is not our affair
    Exception.__init__(error, f"a {kind.__name__}")
    if issubclass(kind, aiohttp.ClientResponseError):
        error.__dict__.update(message="it failed", status=0)
    if kind.__module__.startswith("aiohttp"):
        monkeypatch.setattr(kind, "__str__", lambda self: "it failed")

    async def fail(*args: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(aiohttp.ClientSession, "request", fail)
    caught = await failure("http://127.0.0.1:9/v1")
    expected = ModelTimeout if issubclass(kind, TimeoutError) else ModelUnavailable
    assert type(caught) is expected
    assert type(translate(Endpoint(""), error)) is expected


def test_an_error_is_reported_in_the_names_of_its_endpoint():
    endpoint = Endpoint("", title="embedding endpoint", variables="MEMSERVER_EMBEDDING")
    error = translate(endpoint, StatusError(401, {"message": "who?"}))
    assert error.message == "The embedding endpoint answered 401: who?"
    assert error.hint == "Set MEMSERVER_EMBEDDING_API_KEY to a key that this endpoint takes."


class Stub:
    """An endpoint that answers what a test sets."""

    def __init__(self) -> None:
        self.response: Response = JSONResponse({})
        self.hang = False
        self.asked: list[Request] = []

    async def answer(self, request: Request) -> Response:
        self.asked.append(request)
        if self.hang:
            await asyncio.Event().wait()
        return self.response


@pytest.fixture
def stub() -> Stub:
    return Stub()


@pytest.fixture
def url(stub: Stub, current: Current, served: str) -> str:
    current.app = Starlette(routes=[Route("/v1/x", stub.answer, methods=["GET", "POST"])])
    return served


class EndpointClientOf:
    """A client that is closed at the end."""

    def __init__(self, url: str, **options: object) -> None:
        self.client = EndpointClient(Endpoint(url, **options))

    async def __aenter__(self) -> EndpointClient:
        return self.client

    async def __aexit__(self, *error: object) -> None:
        await self.client.aclose()


async def failure(url: str, *, within: float = 5, streamed: bool = False) -> MemserverError:
    client = EndpointClient(Endpoint(url, max_retries=0, timeout=within))
    with pytest.raises(MemserverError) as caught:
        await (listened(client) if streamed else client.post("/x", b"{}"))
    await client.aclose()
    return caught.value


async def listened(client: EndpointClient) -> list[object]:
    return [event async for event in client.stream("/x", b"{}")]


ENDLESS = 40_000_000


class Endless:
    """A body that has no end as long as anybody reads it, and how much of it was taken."""

    def __init__(self, start: bytes, piece: bytes) -> None:
        self.start, self.piece, self.sent = start, piece, 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self.start
        while self.sent < ENDLESS:
            self.sent += len(self.piece)
            yield self.piece
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("start", "piece", "streamed"),
    [
        (b'{"a": "', b"x" * 1000, False),
        (b"", b" " * 1000, False),
        (b'data: {"a": "', b"x" * 1000, True),
        (b"", b"data: x\n" * 100, True),
        (b"", b": ping\n\n" * 100, True),
        (b"", b'data: {"a": 1}\n\n' * 100, True),
    ],
)
async def test_an_answer_that_never_ends_is_given_up(
    url: str, stub: Stub, start: bytes, piece: bytes, streamed: bool
):
    body = Endless(start, piece)
    stub.response = StreamingResponse(body)
    async with EndpointClientOf(url, most_bytes=100_000) as client:
        with pytest.raises(ModelAnswerTooLarge):
            await (listened(client) if streamed else client.post("/x", b"{}"))
    assert body.sent < ENDLESS


@pytest.mark.parametrize("value", ["[],", "{},", "1,", '{"a":1},'])
@pytest.mark.parametrize("streamed", [False, True])
async def test_an_answer_of_more_values_than_are_read_is_refused(
    url: str, stub: Stub, value: str, streamed: bool
):
    text = '{"a":[' + value * 500_000 + "1]}"
    stub.response = Response(f"data: {text}\n\n" if streamed else text)
    async with EndpointClientOf(url, most_bytes=10_000_000) as client:
        with pytest.raises(ModelAnswerTooLarge):
            await (listened(client) if streamed else client.post("/x", b"{}"))


async def test_an_error_that_never_ends_is_the_error_of_its_status(url: str, stub: Stub):
    body = Endless(b'{"error": {"message": "', b"x" * 1000)
    stub.response = StreamingResponse(body, 400)
    assert type(await failure(url)) is ModelRejected
    assert body.sent < ENDLESS


@pytest.mark.parametrize(
    ("status", "kind", "hint"),
    [
        (400, ModelRejected, ""),
        (401, ModelRejected, "MEMSERVER_LLM_API_KEY"),
        (403, ModelRejected, "MEMSERVER_LLM_API_KEY"),
        (404, ModelRejected, "MEMSERVER_LLM_MODEL"),
        (408, ModelTimeout, ""),
        (422, ModelRejected, ""),
        (429, ModelUnavailable, "limits"),
        (500, ModelUnavailable, ""),
        (503, ModelUnavailable, ""),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_status_is_the_error_of_its_kind(
    url: str, stub: Stub, status: int, kind: type[ModelError], hint: str, streamed: bool
):
    stub.response = JSONResponse({"error": {"message": "because"}}, status)
    error = await failure(url, streamed=streamed)
    assert type(error) is kind
    assert "because" in error.message
    assert hint in error.hint


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, {"code": "context_length_exceeded", "message": "Too long."}),
        (400, {"message": "This model's maximum context length is 2048 tokens. However, …"}),
        (
            400,
            {"message": "'max_tokens' is too large: 9. This model's maximum context length is 8"},
        ),
        (
            400,
            {
                "message": "The decoder prompt (length 9) is longer than the maximum model length of 8."
            },
        ),
        (400, {"type": "exceed_context_size_error", "message": "the request exceeds it"}),
        (400, {"message": "the request exceeds the available context size. try increasing it"}),
        (500, {"message": "Context size has been exceeded."}),
        (400, {"message": "Requested tokens (9) exceed context window of 8"}),
        (400, {"message": "The input (9 tokens) is longer than the model's context length (8)."}),
    ],
)
async def test_the_wordings_of_a_full_context_are_a_context_overflow(
    url: str, stub: Stub, status: int, error: dict[str, str]
):
    stub.response = JSONResponse({"error": error}, status)
    assert type(await failure(url)) is ContextOverflow


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (404, {"message": "The model `x` does not exist.", "type": "NotFoundError"}),
        (404, {"message": "LoRA adapter x does not exist", "type": "NotFoundError"}),
        (404, {"message": "No access.", "code": "model_not_found"}),
        (404, {"message": 'model "x" not found, try pulling it first'}),
        (400, {"message": "x is not a valid model ID"}),
        (400, {"message": "Invalid model name passed in model=x. Call `/v1/models`"}),
        (400, {"message": "Bad.", "type": "invalid_model"}),
    ],
)
async def test_the_wordings_of_a_missing_model_are_a_model_not_found(
    url: str, stub: Stub, status: int, error: dict[str, str]
):
    stub.response = JSONResponse({"error": error}, status)
    assert type(await failure(url)) is ModelNotFound


@pytest.mark.parametrize(
    ("status", "reported"),
    [
        (404, "Not Found"),
        (404, "No endpoints found that support tool use."),
        (400, "The model's answer can't be held to a schema."),
        (401, "The model `x` does not exist."),
    ],
)
async def test_other_refusals_are_not_taken_for_a_missing_model(
    url: str, stub: Stub, status: int, reported: str
):
    stub.response = JSONResponse({"error": {"message": reported}}, status)
    assert type(await failure(url)) is ModelRejected


@pytest.mark.parametrize(
    "response",
    [
        PlainTextResponse("<html>Welcome</html>"),
        PlainTextResponse(""),
        PlainTextResponse("[1]"),
        PlainTextResponse('{"a":' * 10_000),
        Response(b"\xff\xfe\xfa"),
    ],
)
async def test_an_answer_that_is_no_json_object_says_where_to_look(
    url: str, stub: Stub, response: Response
):
    stub.response = response
    error = await failure(url)
    assert type(error) is ModelUnavailable
    assert "MEMSERVER_LLM_BASE_URL" in error.hint


@pytest.mark.parametrize(
    ("body", "reported"),
    [
        ('{"error": {"message": "because"}}', "because"),
        ('{"object": "error", "message": "because"}', "because"),
        ('{"error": "because"}', "because"),
        ('{"detail": "because"}', "because"),
        ("<html>", "Bad Request"),
        ("", "Bad Request"),
        ("null", "does not say why"),
        ('{"a":' * 10_000, "Bad Request"),
    ],
)
async def test_a_refusal_in_any_shape_is_reported(url: str, stub: Stub, body: str, reported: str):
    stub.response = Response(body, 400)
    error = await failure(url)
    assert type(error) is ModelRejected
    assert reported in error.message


async def test_a_compressed_answer_is_read_and_a_broken_one_is_an_error(url: str, stub: Stub):
    stub.response = Response(gzip.compress(b'{"a": 1}'), headers={"Content-Encoding": "gzip"})
    async with EndpointClientOf(url) as client:
        assert await client.post("/x", b"{}") == {"a": 1}
    stub.response = Response(b"not compressed", headers={"Content-Encoding": "gzip"})
    assert type(await failure(url)) is ModelUnavailable
    assert type(await failure(url, streamed=True)) is ModelUnavailable


async def test_megabytes_go_out_and_come_back(url: str, stub: Stub):
    stub.response = JSONResponse({"long": "x" * 5_000_000})
    async with EndpointClientOf(url) as client:
        answer = await client.post("/x", b'"' + b"y" * 3_000_000 + b'"')
    assert len(answer["long"]) == 5_000_000
    assert stub.asked[0].headers["content-length"] == "3000002"


async def test_a_redirect_is_followed_with_the_body(url: str, stub: Stub, current: Current):
    elsewhere = Route("/v1/y", stub.answer, methods=["POST"])
    there = RedirectResponse("/v1/y")

    async def moved(request: Request) -> Response:
        return there

    current.app = Starlette(routes=[Route("/v1/x", moved, methods=["POST"]), elsewhere])
    async with EndpointClientOf(url) as client:
        assert await client.post("/x", b"{}") == {}
    assert stub.asked[0].headers["content-length"] == "2"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "gone", "code": 500}, ModelUnavailable),
        ({"message": "bad", "code": 400}, ModelRejected),
        ({"message": "maximum context length is 8", "code": 400}, ContextOverflow),
        ({"message": "something"}, ModelUnavailable),
        ("something", ModelUnavailable),
    ],
)
async def test_an_error_in_the_middle_of_a_stream_is_the_error_of_its_kind(
    url: str, stub: Stub, error: object, kind: type[ModelError]
):
    text = f"data: {{}}\n\ndata: {JSONResponse({'error': error}).body.decode()}\n\n"
    stub.response = PlainTextResponse(text, media_type="text/event-stream")
    assert type(await failure(url, streamed=True)) is kind


async def test_a_stream_of_broken_json_is_an_error(url: str, stub: Stub):
    stub.response = PlainTextResponse("data: {nope\n\n", media_type="text/event-stream")
    assert type(await failure(url, streamed=True)) is ModelUnavailable


@pytest.mark.parametrize(
    "base",
    [
        "http://127.0.0.1:9/v1",
        "nonsense",
        "https://127.0.0.1:9/v1",
    ],
)
async def test_an_endpoint_that_can_not_be_reached_says_where_to_look(base: str):
    error = await failure(base)
    assert type(error) is ModelUnavailable
    assert "MEMSERVER_LLM_BASE_URL" in error.hint


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_endpoint_that_does_not_answer_is_a_timeout(url: str, stub: Stub, streamed: bool):
    stub.hang = True
    assert type(await failure(url, within=0.1, streamed=streamed)) is ModelTimeout


async def test_the_key_is_sent_and_nothing_else_that_the_environment_knows(
    url: str, stub: Stub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password private")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("OPENAI_ORG_ID", "org-private")
    stub.response.set_cookie("session", "private")
    async with EndpointClientOf(url, api_key="secret") as client:
        await client.post("/x", b"{}")
        await client.post("/x", b"{}")
    assert len(stub.asked) == 2
    for request in stub.asked:
        assert request.headers["authorization"] == "Bearer secret"
        assert "private" not in str(request.headers)
        assert "cookie" not in request.headers


async def test_without_a_key_none_is_sent(url: str, stub: Stub):
    async with EndpointClientOf(url) as client:
        await client.post("/x", b"{}")
    assert "authorization" not in stub.asked[0].headers


async def test_a_name_and_password_in_the_address_take_the_keys_place(url: str, stub: Stub):
    async with EndpointClientOf(url.replace("//", "//me:private@"), api_key="secret") as client:
        await client.post("/x", b"{}")
    assert stub.asked[0].headers["authorization"].startswith("Basic ")


async def test_a_proxy_is_used_but_not_for_this_machine(
    url: str, served: str, stub: Stub, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("http_proxy", served.removesuffix("/v1").removeprefix("http://"))
    async with EndpointClientOf("http://models.example/v1") as client:
        await client.post("/x", b"{}")
    assert stub.asked[0].headers["host"] == "models.example"
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    for host in ("127.0.0.1", "localhost"):
        async with EndpointClientOf(url.replace("127.0.0.1", host)) as client:
            await client.post("/x", b"{}")
    monkeypatch.setenv("no_proxy", "models.example")
    monkeypatch.setenv("http_proxy", "socks5://127.0.0.1:9")
    EndpointClient(Endpoint("http://models.example/v1"))
    with pytest.raises(SetupError, match="socks5"):
        EndpointClient(Endpoint("http://others.example/v1"))


async def test_a_closed_client_asks_nothing_more(url: str, stub: Stub):
    client = EndpointClient(Endpoint(url))
    await client.post("/x", b"{}")
    await client.aclose()
    with pytest.raises(ModelUnavailable, match="closed"):
        await client.post("/x", b"{}")
    assert len(stub.asked) == 1


def test_a_key_never_shows_in_a_representation():
    assert "secret" not in repr(Endpoint("http://x/v1", api_key="secret"))
