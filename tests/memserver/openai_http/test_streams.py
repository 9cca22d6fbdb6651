"""What comes where a stream was requested is understood, and a stream that ends early is never taken for whole."""

import json

import pytest

from memserver.errors import (
    ContextOverflow,
    ModelError,
    ModelNotFound,
    ModelQuotaExceeded,
    ModelRefused,
    ModelRejected,
    ModelUnavailable,
)
from memserver.openai_http.client import EndpointClient
from tests.memserver.openai_http.scripted_server import (
    STREAM,
    Scripted,
    asking,
    chunked,
    listened,
    refusal,
    whole,
)

SSE = "text/event-stream"
ANSWER = {"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]}


def delta(content: str, finish: str | None = None, index: int = 0) -> dict[str, object]:
    return {"choices": [{"index": index, "delta": {"content": content}, "finish_reason": finish}]}


def event(value: object) -> str:
    return f"data: {json.dumps(value)}\n\n"


HALF, END = delta("Hel"), delta("lo", "stop")


async def heard(client: EndpointClient) -> tuple[list[object], ModelError | None]:
    """What a stream gave, and the error with which it ended."""
    found: list[object] = []
    try:
        async for each in client.stream("/x", b"{}"):
            found.append(each)  # noqa: PERF401 - what came before the error counts
    except ModelError as error:
        return found, error
    return found, None


async def reported(answer: bytes | tuple[bytes, ...]) -> tuple[list[object], ModelError | None]:
    async with asking(Scripted(answer), retries=0) as client:
        return await heard(client)


@pytest.mark.parametrize(
    "text",
    [
        event(HALF) + event(END) + "data: [DONE]\n\n",
        event(HALF) + event(END),
        (event(HALF) + event(END)).rstrip(),
        event(HALF) + event(END) + "data: [DONE]",
        "\ufeff\n: hello\n\n" + event(HALF) + event(END),
        (event(HALF) + event(END)).replace("\n", "\r\n"),
    ],
    ids=["done", "finish alone", "no last line break", "done without one", "BOM", "CRLF"],
)
@pytest.mark.parametrize("kind", [SSE, f"{SSE}; charset=utf-8", "application/json", "text/plain"])
async def test_a_stream_that_comes_to_its_end_is_whole(text: str, kind: str) -> None:
    assert await reported(whole(text, kind)) == ([HALF, END], None)


async def test_a_stream_is_whole_where_any_choice_finished() -> None:
    second = delta("lo", "stop", index=1)
    both = {"choices": [*HALF["choices"], *second["choices"]]}  # type: ignore[misc]
    usage = {"choices": [], "usage": {"total_tokens": 3}}
    assert (await reported(whole(event(both) + event(usage), SSE)))[1] is None


async def test_a_field_for_an_error_that_is_empty_is_none() -> None:
    assert (await reported(whole(event({**END, "error": None}), SSE)))[1] is None
    odd = {"choices": [None, 3, *END["choices"]], "error": {}}  # type: ignore[misc]
    assert (await reported(whole(event(odd), SSE)))[1] is None


@pytest.mark.parametrize(
    "text",
    [
        event(HALF),
        event(HALF) + event({"choices": [], "usage": {"total_tokens": 3}}),
        event(HALF) + 'data: {"choices": [{"del',
        event(HALF) + ": ping\n\n",
    ],
    ids=["between events", "with usage", "within an event", "with a comment"],
)
async def test_a_stream_that_ends_early_is_an_error_after_what_came(text: str) -> None:
    found, error = await reported(whole(text, SSE))
    assert found[0] == HALF
    assert type(error) is ModelUnavailable
    assert "ended its stream early" in error.message
    assert error.hint


@pytest.mark.parametrize("text", ['data: {"choices": [{"del', "data:"])
async def test_a_stream_that_ends_within_its_first_event_ended_early(text: str) -> None:
    found, error = await reported(whole(text, SSE))
    assert found == []
    assert "ended its stream early" in str(error)


@pytest.mark.parametrize("kind", ["application/json", SSE, "text/plain"])
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("before", ["", "\n ", "\ufeff"])
async def test_a_whole_answer_is_one_object(kind: str, indent: int | None, before: str) -> None:
    text = before + json.dumps(ANSWER, indent=indent)
    assert await reported(whole(text, kind)) == ([ANSWER], None)


async def test_a_whole_answer_that_comes_in_pieces_is_one_object() -> None:
    text = json.dumps(ANSWER, indent=1).encode()
    pieces = tuple(chunked(text[at : at + 7]) for at in range(0, len(text), 7))
    assert await reported((STREAM, *pieces, b"0\r\n\r\n")) == ([ANSWER], None)


async def test_lines_of_json_are_events() -> None:
    lines = "\n".join(map(json.dumps, (HALF, END)))
    assert await reported(whole(lines, "application/x-ndjson")) == ([HALF, END], None)


@pytest.mark.parametrize("rest", ["", '\n{"choices": [{"del'])
async def test_lines_of_json_that_end_early_are_an_error(rest: str) -> None:
    lines = "\n".join(map(json.dumps, (HALF, HALF))) + rest
    _, error = await reported(whole(lines, "application/x-ndjson"))
    assert "ended its stream early" in str(error)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (whole("<html><title>Sign in to Proxy</title><p>Hi", "text/html"), "Sign in to Proxy"),
        (whole("<!doctype html><h1>It  works!</h1>", "text/html"), "It works!"),
        (whole("upstream is away", "text/plain"), "upstream is away"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "204"),
        (whole("", code=202), "202"),
        (whole("", SSE), "empty"),
        (whole("null"), "null"),
        (whole("[]"), "[]"),
        (whole('"words"'), "words"),
        (whole('{"a": 1'), '{"a": 1'),
    ],
    ids=["sign-in", "page", "words", "204", "202", "empty", "null", "list", "text", "half"],
)
@pytest.mark.parametrize("streamed", [True, False])
async def test_what_is_no_answer_is_an_error_in_the_endpoints_words(
    answer: bytes, words: str, streamed: bool
) -> None:
    async with asking(Scripted(answer), retries=0) as client:
        with pytest.raises(ModelUnavailable, match="did not answer as an OpenAI-comp") as caught:
            await (listened(client) if streamed else client.post("/x", b"{}"))
    assert words in caught.value.message
    assert "MEMSERVER_LLM_BASE_URL" in caught.value.hint


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (whole('{"status": "queued"}', code=202), "queued"),
        (whole(": ping\n\n: ping\n\n", SSE), "empty"),
        (whole('{"choices": []}'), "choices"),
    ],
    ids=["queued", "pings", "no choice"],
)
async def test_what_is_no_stream_is_an_error_in_the_endpoints_words(
    answer: bytes, words: str
) -> None:
    found, error = await reported(answer)
    assert found == []
    assert type(error) is ModelUnavailable
    assert words in error.message


ERRORS = [
    ({"error": {"message": "slow down", "code": 429}}, ModelUnavailable),
    ({"error": {"message": "slow down", "code": "429"}}, ModelUnavailable),
    ({"error": {"message": "slow down", "code": "rate_limit_exceeded"}}, ModelUnavailable),
    ({"error": {"message": "no", "code": 400}}, ModelRejected),
    ({"error": {"message": "no", "type": "invalid_request_error"}}, ModelRejected),
    ({"error": {"message": "who?", "code": "invalid_api_key"}}, ModelRejected),
    ({"error": {"message": "no", "status": "INVALID_ARGUMENT"}}, ModelRejected),
    ([{"error": {"message": "no", "code": 400}}], ModelRejected),
    ({"error": {"message": "The model `x` does not exist", "code": 404}}, ModelNotFound),
    ({"error": {"message": "maximum context length is 8"}}, ContextOverflow),
    ({"error": {"message": "no", "code": "insufficient_quota"}}, ModelQuotaExceeded),
    ({"error": {"message": "no", "code": "content_filter"}}, ModelRefused),
    ({"error": "Unexpected endpoint or method. (POST /chat/completions)"}, ModelRejected),
    ({"type": "error", "error": {"type": "overloaded_error", "message": "x"}}, ModelUnavailable),
    ({"object": "error", "message": "no", "code": 400}, ModelRejected),
    ({"choices": [{"error": {"code": 502, "message": "away"}, "delta": {}}]}, ModelUnavailable),
    ({"error": {"message": "something"}}, ModelUnavailable),
]  # fmt: skip


@pytest.mark.parametrize(("error", "kind"), ERRORS, ids=lambda value: str(value)[:60])
@pytest.mark.parametrize("form", ["whole", "stream of JSON", "event", "event after text"])
async def test_an_error_with_200_is_the_error_that_it_names(
    error: object, kind: type[ModelError], form: str
) -> None:
    if isinstance(error, list) and form.startswith("event"):
        error = error[0]
    text = event(error) if form.startswith("event") else json.dumps(error)
    text = event(HALF) + text if form == "event after text" else text
    async with asking(Scripted(whole(text, "text/x")), retries=0) as client:
        if form == "whole":
            with pytest.raises(ModelError) as caught:
                await client.post("/x", b"{}")
            assert type(caught.value) is kind
        else:
            found, ended = await heard(client)
            assert type(ended) is kind
            assert found == ([HALF] if form == "event after text" else [])


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_error_with_200_is_asked_again_as_its_status_would_be(streamed: bool) -> None:
    limit = {"error": {"message": "slow down, retry in 0s", "code": 429}}
    good = whole(event(END), SSE) if streamed else whole(json.dumps(ANSWER))
    server = Scripted(whole(json.dumps(limit)), refusal(429, limit), good)
    async with asking(server, retries=2) as client:
        if streamed:
            assert await listened(client) == [END]
        else:
            assert await client.post("/x", b"{}") == ANSWER
    assert server.requests == 3


async def test_an_error_after_text_came_is_not_asked_again() -> None:
    limit = {"error": {"message": "slow down, retry in 0s", "code": 429}}
    server = Scripted(whole(event(HALF) + event(limit), SSE))
    async with asking(server, retries=2) as client:
        found, error = await heard(client)
    assert (found, type(error), server.requests) == ([HALF], ModelUnavailable, 1)
