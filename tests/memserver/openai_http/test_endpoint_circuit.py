"""Which failures say that an endpoint is down, and what is still asked then."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from memserver.errors import ModelError, ModelRejected, ModelTimeout, ModelUnavailable
from memserver.llm.endpoint_tokenizer import EndpointOrEstimate
from memserver.llm.estimate import estimate
from memserver.openai_http.circuit import Circuit
from memserver.openai_http.client import EndpointClient
from memserver.openai_http.endpoint import Endpoint
from tests.memserver.openai_http.scripted_server import (
    CLOSE,
    OK,
    STREAM,
    Scripted,
    asking,
    chunked,
    listened,
    status,
)

SILENT = (b"HTTP/1.1 200 OK\r\n",)
EVENT = chunked(b'data: {"a": 1}\n\n')
MODELS = b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"data": []}'


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("answer", "down"),
    [
        (CLOSE, True),
        (status(500), True),
        (status(503), True),
        (SILENT, True),
        ((OK[:-3], CLOSE), True),
        (status(429), False),
        (status(400), False),
        (status(401), False),
        (status(500, body='{"error": {"message": "Context window exceeded"}}'), False),
    ],
    ids=["closed", "500", "503", "silent", "half", "429", "400", "401", "overflow"],
)
async def test_an_outage_opens_the_circuit_and_a_refusal_does_not(
    answer: bytes | tuple[bytes, ...], down: bool, streamed: bool
) -> None:
    circuit = Circuit(failures=1)
    async with asking(Scripted(answer), retries=0, within=0.3, circuit=circuit) as client:
        with pytest.raises(ModelError):
            await (listened(client) if streamed else client.post("/x", b"{}"))
    assert circuit.is_open is down


async def test_a_stream_that_breaks_off_counts_and_one_that_is_too_long_does_not() -> None:
    circuit = Circuit(failures=1)
    endless = (STREAM, EVENT)
    async with asking(Scripted(endless), retries=0, within=0.3, circuit=circuit) as client:
        with pytest.raises(ModelTimeout):
            await listened(client)
    assert not circuit.is_open
    async with asking(Scripted((STREAM, EVENT, CLOSE)), retries=0, circuit=circuit) as client:
        with pytest.raises(ModelUnavailable):
            await listened(client)
    assert circuit.is_open


@contextlib.asynccontextmanager
async def trickling() -> AsyncIterator[str]:
    """A server whose answers never end, a few bytes at a time."""
    serving: set[asyncio.Task[None] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.current_task())
        await reader.readuntil(b"{}")
        writer.write(STREAM)
        with contextlib.suppress(ConnectionError):
            while not reader.at_eof():
                writer.write(EVENT)
                await writer.drain()
                await asyncio.sleep(0)
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    listening.close()
    await asyncio.gather(*filter(None, serving))


async def test_a_stream_that_trickles_for_ever_ends_at_the_time_limit() -> None:
    async with trickling() as url:
        client = EndpointClient(Endpoint(url, timeout=0.3))
        heard: list[object] = []
        events = client.stream("/x", b"{}")

        async def listen() -> None:
            heard.append(await anext(events))
            heard.extend([event async for event in events])

        with pytest.raises(ModelTimeout, match=r"within 0\.3 seconds"):
            await listen()
        assert heard
        await client.aclose()


@pytest.mark.parametrize(
    "ask",
    [lambda client: client.post("/x", b"{}"), listened, lambda client: client.models()],
    ids=["post", "stream", "models"],
)
async def test_while_it_is_open_nothing_is_sent(ask: Callable[[EndpointClient], object]) -> None:
    server, circuit = Scripted(status(500)), Circuit(failures=1)
    async with asking(server, retries=0, circuit=circuit) as client:
        with pytest.raises(ModelUnavailable):
            await client.post("/x", b"{}")
        with pytest.raises(ModelUnavailable, match="not asked now"):
            await ask(client)  # type: ignore[misc]
    assert server.requests == 1


async def test_a_stream_that_its_reader_leaves_is_no_answer_for_a_try_and_no_failure() -> None:
    circuit = Circuit(failures=1, first_pause=0)
    server = Scripted(CLOSE, SILENT, OK)
    async with asking(server, retries=0, circuit=circuit) as client:
        with pytest.raises(ModelUnavailable):
            await client.post("/x", b"{}")
        left = asyncio.create_task(listened(client))
        while server.requests < 2:
            await asyncio.to_thread(lambda: None)
        assert "a try is under way" in circuit.describe()
        left.cancel()
        await asyncio.gather(left, return_exceptions=True)
        assert circuit.is_open
        assert await client.post("/x", b"{}") == {"a": 1}
    assert not circuit.is_open


async def test_a_check_is_always_sent_reports_the_outage_and_closes_the_circuit() -> None:
    circuit = Circuit(failures=1)
    server = Scripted(status(500), status(503), status(401), MODELS, OK)
    async with asking(server, retries=0, circuit=circuit) as client:
        with pytest.raises(ModelUnavailable):
            await client.post("/x", b"{}")
        with pytest.raises(ModelUnavailable, match=r"503.* It has failed since .* answered 500"):
            await client.check()
        with pytest.raises(ModelRejected, match="It has failed since"):
            await client.check()
        assert await client.check() == []
        assert await client.post("/x", b"{}") == {"a": 1}


async def test_tokens_are_estimated_without_asking_while_the_circuit_is_open() -> None:
    circuit = Circuit(failures=1)
    counted = b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"count": 8}'
    server = Scripted(counted, counted)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    counter = EndpointOrEstimate(Endpoint(f"http://127.0.0.1:{port}/v1"), "m", circuit)
    assert await counter.count(["known"]) == [8]
    circuit.begin().record_failure(ModelUnavailable("It is away."))
    assert await counter.count(["known"]) == [8]
    assert await counter.count(["other"]) == [estimate("other")]
    assert server.requests == 2  # for a sentence of ours, and for the text
    await counter.aclose()
    listening.close()
    await server.ended()
