"""What is tried again, and what never is: against a server that follows a script, byte by byte."""

import asyncio
import socket
import time
from collections.abc import Callable
from email.utils import formatdate

import pytest

from memserver.agent.deadline import Deadline
from memserver.errors import (
    ContextOverflow,
    ModelError,
    ModelQuotaExceeded,
    ModelRejected,
    ModelTimeout,
    ModelUnavailable,
)
from memserver.openai_http.circuit import Circuit
from memserver.openai_http.client import EndpointClient
from memserver.openai_http.endpoint import Endpoint
from memserver.openai_http.streams import EventParser
from memserver.settings import Settings
from memserver.wiring.providers import model_endpoint
from tests.memserver.openai_http.scripted_server import (
    CLOSE,
    OK,
    STREAM,
    Scripted,
    asking,
    chunked,
    listened,
    refusal,
    status,
)


async def test_a_connection_is_used_again():
    server = Scripted(OK, OK, (STREAM + chunked(b"data: [DONE]\n\n"), b"0\r\n\r\n"), OK)
    async with asking(server) as client:
        await client.post("/x", b"{}")
        await client.post("/x", b"{}")
        assert await listened(client) == []
        await client.post("/x", b"{}")
    assert (server.requests, server.connections) == (4, 1)


@pytest.mark.parametrize(
    "failed",
    [
        CLOSE,
        status(500),
        status(503),
        status(429),
        status(408),
        (b"HTTP/1.1 200 OK\r\nCont", CLOSE),
    ],
    ids=["closed", "500", "503", "429", "408", "half a head"],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_what_was_not_answered_is_asked_again(failed: bytes, streamed: bool):
    events = b'data: {"a": 1}\n\ndata: [DONE]\n\n'
    answer = (STREAM + chunked(events) + b"0\r\n\r\n") if streamed else OK
    server = Scripted(OK, failed, answer)
    async with asking(server) as client:
        await client.post("/x", b"{}")
        if streamed:
            assert await listened(client) == [{"a": 1}]
        else:
            assert await client.post("/x", b"{}") == {"a": 1}
    assert server.requests == 3


async def test_an_endpoint_that_refuses_first_is_asked_again(monkeypatch: pytest.MonkeyPatch):
    server = Scripted(OK)
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    listening: list[asyncio.Server] = []

    async def start_meanwhile(seconds: float) -> None:
        assert 0 < seconds <= 0.5
        listening.append(await asyncio.start_server(server.serve, "127.0.0.1", port))

    monkeypatch.setattr("memserver.openai_http.client.asyncio.sleep", start_meanwhile)
    client = EndpointClient(Endpoint(f"http://127.0.0.1:{port}/v1"))
    assert await client.post("/x", b"{}") == {"a": 1}
    await client.aclose()
    listening[0].close()
    await server.ended()


@pytest.mark.parametrize(("failed", "retries"), [(status(503), 0), (CLOSE, 0), (status(503), 2)])
async def test_it_is_tried_no_more_often_than_is_set(failed: bytes, retries: int):
    server = Scripted(*[failed] * 5)
    async with asking(server, retries=retries) as client:
        with pytest.raises(ModelUnavailable):
            await client.post("/x", b"{}")
    assert server.requests == retries + 1


@pytest.mark.parametrize(
    ("failed", "kind"),
    [
        (status(400), ModelRejected),
        (status(404), ModelRejected),
        (status(409), ModelRejected),
        (status(500, body='{"error": {"message": "Context window exceeded"}}'), ContextOverflow),
        (status(429, body='{"error": {"code": "insufficient_quota"}}'), ModelQuotaExceeded),
        ((OK[:-3], CLOSE), ModelUnavailable),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", ModelUnavailable),
    ],
    ids=["400", "404", "409", "overflow", "quota", "half an answer", "no HTTP"],
)
async def test_what_would_fail_again_or_was_answered_is_not_asked_again(
    failed: bytes, kind: type[ModelError]
):
    server = Scripted(failed)
    async with asking(server) as client:
        with pytest.raises(ModelError) as caught:
            await client.post("/x", b"{}")
    assert type(caught.value) is kind
    assert server.requests == 1


async def test_a_stream_that_breaks_off_is_not_asked_again():
    server = Scripted((STREAM, chunked(b'data: {"a": 1}\n\n'), CLOSE))
    async with asking(server) as client:
        events = client.stream("/x", b"{}")
        assert await anext(events) == {"a": 1}
        with pytest.raises(ModelUnavailable):
            await anext(events)
    assert server.requests == 1


@pytest.mark.parametrize(
    "retry_after", ["60", formatdate(time.time() + 86_400, usegmt=True)], ids=["seconds", "date"]
)
async def test_a_wait_beyond_the_time_limit_is_not_begun(retry_after: str):
    server = Scripted(status(429, retry_after))
    async with asking(server) as client:
        with pytest.raises(ModelUnavailable, match="429"):
            await client.post("/x", b"{}")
    assert server.requests == 1


@pytest.mark.parametrize("retry_after", ["-3", formatdate(0, usegmt=True)])
async def test_a_time_that_has_passed_is_now(retry_after: str):
    async with asking(Scripted(status(503, retry_after), OK)) as client:
        assert await client.post("/x", b"{}") == {"a": 1}


@pytest.mark.parametrize("retry_after", ["soon", "nan", "inf", ""])
async def test_a_retry_after_that_says_nothing_is_a_short_pause(
    retry_after: str, paused: list[float]
):
    async with asking(
        Scripted(status(503, retry_after), status(503, "soon"), OK), retries=2
    ) as client:
        await client.post("/x", b"{}")
    assert 0 < paused[0] <= 0.5
    assert 0 < paused[1] <= 1


@pytest.fixture
def paused(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses, none of which is waited for."""
    pauses: list[float] = []

    async def noted(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("memserver.openai_http.client.asyncio.sleep", noted)
    return pauses


@pytest.mark.parametrize(
    ("failed", "pause"),
    [
        (refusal(429, {}, retry_after="3"), 3),
        (refusal(503, {}, retry_after="3", retry_after_ms="250"), 0.25),
        (refusal(429, {}, retry_after_ms="soon", retry_after="2"), 2),
        (refusal(429, {"error": {"message": "Please try again in 1.5s."}}), 1.5),
        (
            refusal(
                429, {}, x_ratelimit_remaining_tokens="0", x_ratelimit_reset_tokens="1s",
                x_ratelimit_remaining_requests="9", x_ratelimit_reset_requests="4m0s",
            ),
            1,
        ),
        (refusal(400, {"error": {"message": "The model is being loaded"}}, retry_after="2"), 2),
        (refusal(503, {"error": {"message": "Loading model"}}, retry_after="1"), 1),
    ],
    ids=["seconds", "milliseconds", "no milliseconds", "words", "OpenAI's limits", "loads", "503"],
)  # fmt: skip
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_wait_that_is_requested_is_kept(
    failed: bytes, pause: float, streamed: bool, paused: list[float]
):
    end = b'data: {"a": 1}\n\ndata: [DONE]\n\n'
    server = Scripted(failed, failed, (STREAM + chunked(end), b"0\r\n\r\n") if streamed else OK)
    async with asking(server, retries=2) as client:
        answer = await (listened(client) if streamed else client.post("/x", b"{}"))
    assert answer == ([{"a": 1}] if streamed else {"a": 1})
    assert paused == [pause, pause]


async def test_pauses_grow_where_none_is_requested(paused: list[float]):
    async with asking(Scripted(*[refusal(500, {})] * 7), retries=6, within=60) as client:
        with pytest.raises(ModelUnavailable):
            await client.post("/x", b"{}")
    longest = (0.5, 1, 2, 4, 8, 8)
    assert all(most / 2 <= pause <= most for pause, most in zip(paused, longest, strict=True))


@pytest.mark.parametrize(
    "failed",
    [
        refusal(402, {}),
        refusal(403, {"error": {"code": "content_filter"}}),
        refusal(501, {"error": {"message": "not implemented"}}),
        refusal(500, {"error": {"message": "tools param requires --jinja flag"}}),
        refusal(429, {"error": {"message": "Insufficient Balance"}}, retry_after="0"),
        refusal(429, {"error": {"message": "free-models-per-day"}}),
    ],
    ids=["402", "filter", "501", "not able", "no balance", "per day"],
)
async def test_what_no_later_time_changes_is_not_asked_again(failed: bytes, paused: list[float]):
    server = Scripted(failed)
    async with asking(server, retries=5) as client:
        with pytest.raises(ModelError):
            await client.post("/x", b"{}")
    assert (server.requests, paused) == (1, [])


@pytest.mark.parametrize(("left", "requests"), [(2, 1), (20, 2)])
async def test_a_wait_beyond_the_turns_time_is_not_begun(
    left: float, requests: int, paused: list[float]
):
    server = Scripted(refusal(429, {}, retry_after="10"), OK)
    async with asking(server, within=60) as client, Deadline(left).cutting():
        if requests == 2:
            assert await client.post("/x", b"{}") == {"a": 1}
        else:
            with pytest.raises(ModelUnavailable) as caught:
                await client.post("/x", b"{}")
            assert "asks to wait 10 seconds" in caught.value.hint
    assert server.requests == requests


async def test_a_limit_that_is_kept_to_the_end_is_no_outage(paused: list[float]):
    circuit = Circuit(failures=1)
    server = Scripted(*[refusal(429, {})] * 3, OK)
    async with asking(server, retries=2, circuit=circuit) as client:
        with pytest.raises(ModelUnavailable, match="429"):
            await client.post("/x", b"{}")
        assert not circuit.is_open
        assert await client.post("/x", b"{}") == {"a": 1}


async def test_the_settings_say_how_often_it_is_asked_again():
    url = "http://127.0.0.1:9/v1"
    kept = [
        model_endpoint(Settings(_env_file=None, llm_base_url=url, **given)).max_retries
        for given in ({}, {"llm_retries": 0}, {"llm_retries": 7})
    ]
    assert kept == [3, 0, 7]


async def test_the_time_limit_covers_all_tries():
    silent = (b"HTTP/1.1 200 OK\r\n",)
    async with asking(Scripted(status(503), silent), within=0.2) as client:
        with pytest.raises(ModelTimeout, match=r"within 0\.2 seconds"):
            await client.post("/x", b"{}")


async def test_the_list_of_models_has_a_shorter_limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("memserver.openai_http.client._LIST_SECONDS", 0.2)
    async with asking(Scripted((b"HTTP/1.1 200 OK\r\n",))) as client:
        with pytest.raises(ModelTimeout, match=r"within 0\.2 seconds"):
            await client.check()


EVENTS = b': hello\ndata: {"a": 1}\n\nevent: x\nid: 3\ndata:{"b":\ndata: 2}\n\nretry: 9\n\ndata\n\ndata: [DONE]\n\n'
DATA = [b'{"a": 1}', b'{"b":\n2}', b"[DONE]"]


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize(
    "cut", [lambda text: [text], lambda text: [bytes([byte]) for byte in text]], ids=["one", "many"]
)
def test_events_are_the_same_however_they_come(ending: bytes, cut: Callable[[bytes], list[bytes]]):
    parser = EventParser()
    text = b"\xef\xbb\xbf" + EVENTS.replace(b"\n", ending)
    assert [data for piece in cut(text) for data in parser.feed(piece)] == DATA


def test_an_event_that_has_not_ended_is_none():
    assert EventParser().feed(b'data: {"a": 1}\n') == []
