"""Every failure of an endpoint is an error of memserver's, and says what to do."""

import asyncio
import inspect
from collections.abc import Iterator

import httpx2
import openai
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from memserver.errors import (
    ContextOverflow,
    MemserverError,
    ModelError,
    ModelRejected,
    ModelTimeout,
    ModelUnavailable,
    SetupError,
)
from memserver.llm.endpoint import Endpoint, EndpointClient, translated
from tests.llm.serving import Current, serving

REQUEST = httpx2.Request("POST", "http://endpoint/v1")
SDK_ERRORS = sorted(
    {
        kind
        for name, kind in inspect.getmembers(openai, inspect.isclass)
        if issubclass(kind, openai.OpenAIError) and not name.startswith("_")
    },
    key=lambda kind: kind.__name__,
)
HTTP_ERRORS = sorted(
    {
        kind
        for _, kind in inspect.getmembers(httpx2, inspect.isclass)
        if issubclass(kind, httpx2.HTTPError | httpx2.StreamError | httpx2.InvalidURL)
    },
    key=lambda kind: kind.__name__,
)
EXPECTED: dict[str, type[ModelError]] = {
    "OpenAIError": ModelUnavailable,
    "APIError": ModelUnavailable,
    "APIConnectionError": ModelUnavailable,
    "APIResponseValidationError": ModelUnavailable,
    "APIStatusError": ModelRejected,
    "APITimeoutError": ModelTimeout,
    "AuthenticationError": ModelRejected,
    "BadRequestError": ModelRejected,
    "ConflictError": ModelRejected,
    "ContentFilterFinishReasonError": ModelRejected,
    "InternalServerError": ModelUnavailable,
    "LengthFinishReasonError": ModelRejected,
    "MutuallyExclusiveAuthError": ModelUnavailable,
    "NotFoundError": ModelRejected,
    "OAuthError": ModelRejected,
    "PermissionDeniedError": ModelRejected,
    "RateLimitError": ModelUnavailable,
    "SubjectTokenProviderError": ModelUnavailable,
    "UnprocessableEntityError": ModelRejected,
    "WebSocketConnectionClosedError": ModelUnavailable,
    "WebSocketQueueFullError": ModelUnavailable,
}
STATUS = {"RateLimitError": 429, "InternalServerError": 503, "APIStatusError": 418}


def made(kind: type[Exception]) -> Exception:
    """An error of this class, as it is caught: its constructor is not our affair."""
    error = kind.__new__(kind)
    Exception.__init__(error, f"a {kind.__name__}")
    error.__dict__.update(message="it failed", body=None, code=None, type=None)
    if issubclass(kind, openai.APIStatusError):
        error.__dict__["status_code"] = STATUS.get(kind.__name__, getattr(kind, "status_code", 400))
    return error


@pytest.mark.parametrize("kind", SDK_ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_of_the_sdk_is_mapped(kind: type[Exception]):
    assert type(translated(made(kind))) is EXPECTED[kind.__name__]


@pytest.mark.parametrize("kind", HTTP_ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_of_the_http_library_is_mapped(kind: type[Exception]):
    is_timeout = issubclass(kind, httpx2.TimeoutException)
    assert type(translated(made(kind))) is (ModelTimeout if is_timeout else ModelUnavailable)


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


@pytest.fixture(scope="module")
def current() -> Current:
    return Current()


@pytest.fixture(scope="module")
def served(current: Current) -> Iterator[str]:
    with serving(current) as base:
        yield f"{base}/v1"


@pytest.fixture
def url(stub: Stub, current: Current, served: str) -> str:
    current.app = Starlette(routes=[Route("/v1/x", stub.answer, methods=["GET", "POST"])])
    return served


async def failure(url: str, *, within: float = 5, streamed: bool = False) -> MemserverError:
    client = EndpointClient(Endpoint(url, max_retries=0, timeout=within))
    with pytest.raises(MemserverError) as caught:
        await (listened(client) if streamed else client.post("/x", b"{}"))
    await client.aclose()
    return caught.value


async def listened(client: EndpointClient) -> list[object]:
    return [event async for event in client.stream("/x", b"{}")]


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


async def test_an_exhausted_quota_is_refused_and_not_unavailable(url: str, stub: Stub):
    stub.response = JSONResponse({"error": {"message": "no", "code": "insufficient_quota"}}, 429)
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
    ("error", "kind"),
    [
        ({"message": "gone", "code": 500}, ModelUnavailable),
        ({"message": "bad", "code": 400}, ModelRejected),
        ({"message": "maximum context length is 8", "code": 400}, ContextOverflow),
        ({"message": "something"}, ModelUnavailable),
    ],
)
async def test_an_error_in_the_middle_of_a_stream_is_the_error_of_its_kind(
    url: str, stub: Stub, error: dict[str, object], kind: type[ModelError]
):
    text = f"data: {{}}\n\ndata: {JSONResponse({'error': error}).body.decode()}\n\n"
    stub.response = PlainTextResponse(text, media_type="text/event-stream")
    assert type(await failure(url, streamed=True)) is kind


async def test_a_stream_of_broken_json_is_an_error(url: str, stub: Stub):
    stub.response = PlainTextResponse("data: {nope\n\n", media_type="text/event-stream")
    assert type(await failure(url, streamed=True)) is ModelUnavailable


@pytest.mark.parametrize("base", ["http://127.0.0.1:9/v1", "nonsense", "ftp://x/v1"])
async def test_an_endpoint_that_can_not_be_reached_says_where_to_look(base: str):
    error = await failure(base)
    assert type(error) is ModelUnavailable
    assert "MEMSERVER_LLM_BASE_URL" in error.hint


def test_an_address_that_is_no_url_is_a_set_up_error():
    with pytest.raises(SetupError) as caught:
        EndpointClient(Endpoint("http://[::1/v1"))
    assert "MEMSERVER_LLM_BASE_URL" in caught.value.hint


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_endpoint_that_does_not_answer_is_a_timeout(url: str, stub: Stub, streamed: bool):
    stub.hang = True
    assert type(await failure(url, within=0.1, streamed=streamed)) is ModelTimeout


async def test_the_key_is_sent_and_nothing_that_the_environment_says_of_openai(
    url: str, stub: Stub, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_ORG_ID", "org-private")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "project-private")
    monkeypatch.setenv("OPENAI_API_KEY", "another")
    client = EndpointClient(Endpoint(url, api_key="secret"))
    await client.post("/x", b"{}")
    await client.aclose()
    (request,) = stub.asked
    assert request.headers["authorization"] == "Bearer secret"
    assert "private" not in str(request.headers)


def test_a_key_never_shows_in_a_representation():
    assert "secret" not in repr(Endpoint("http://x/v1", api_key="secret"))
