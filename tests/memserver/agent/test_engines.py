"""Several engines behind one server: an agent stays with one, and its turn outlives it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from memserver.openai_http.fleet import Fleet, pinned_to
from tests.support.adapters import make_adapter
from tests.support.model_endpoint import endpoint, load, serving_over_http
from tests.support.server import OneDatabase, Server

ALWAYS = {"llm_mode": "tools", "llm_model": "scripted"}


async def agents_of(server: Server, urls: list[str]) -> list[str]:
    """One agent for each engine, which is its first."""
    fleet = Fleet([(url, url) for url in urls])
    found: dict[str, str] = {}
    while len(found) < len(urls):
        agent = await server.create_agent()
        with pinned_to(agent):
            found.setdefault(fleet.order()[0].url, agent)
    return [found[url] for url in urls]


@asynccontextmanager
async def dying_engine() -> AsyncIterator[tuple[str, list[str]]]:
    """Its connection is lost in the middle of each answer; the first text of that is `Half of`."""
    asked: list[str] = []
    function = {"name": "send_message", "arguments": '{"message": "Half of'}
    delta = {"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": function}]}
    event = f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta}]})}\n\n".encode()
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).decode()
        if "/chat/completions" in request:
            asked.append(request)
            writer.write(head + b"%x\r\n%s\r\n" % (len(event), event))
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1", asked


async def test_an_agent_stays_with_its_engine_and_the_next_one_answers_when_that_is_down(
    database: OneDatabase,
) -> None:
    with ExitStack() as first_runs, endpoint() as second:
        first = first_runs.enter_context(endpoint())
        urls = [first.url, second.url]
        async with serving_over_http(database, ",".join(urls), **ALWAYS) as server:
            agents = await agents_of(server, urls)
            for agent in (*agents, *agents):
                await server.say(agent, "Hello.")
            assert (len(first.asked), len(second.asked)) == (2, 2)
            first_runs.close()
            answer = await server.say(agents[0], "Are you there?")
            assert answer["text"].startswith("I see")
            assert len(second.asked) == 3
            ready = (await server.http.get("/v1/ready")).json()
            await server.operate()
            shown = (await server.http.get("/v1/endpoint")).json()
            measured = (await server.http.get("/metrics")).text
    [model] = [each for each in ready["components"] if each["name"] == "model"]
    assert model["ready"]
    assert f"{first.url} The engine {first.url} can't be reached" in model["detail"]
    assert f"{second.url} answers" in model["detail"]
    assert shown["address"] == ", ".join(urls)
    assert "It has failed since" in shown["detail"]
    counted = 'memserver_engine_duration_seconds_count{error_type="",server_address="%s"} %s.0'
    assert counted % (first.url, 2) in measured
    assert counted % (second.url, 3) in measured


async def test_a_turn_whose_engine_dies_in_the_middle_of_a_stream_is_answered_by_another(
    database: OneDatabase,
) -> None:
    async with dying_engine() as (dying, asked):
        with endpoint() as other:
            urls = [dying, other.url]
            async with serving_over_http(database, ",".join(urls), **ALWAYS) as server:
                [agent, _] = await agents_of(server, urls)
                events = await server.events(agent, "Tell me all.")
    assert len(asked) == 1
    assert "".join(data["text"] for kind, data in events if kind == "message_delta") == "Half of"
    said = [data["text"] for kind, data in events if kind == "message"]
    assert said == ["I see. Please go on, I would like to hear more."]


async def test_an_adapter_that_one_engine_lacks_is_reported_and_asked_of_the_one_that_has_it(
    database: OneDatabase, tmp_path: Path
) -> None:
    adapter = make_adapter(tmp_path / "adapter")
    with endpoint() as first, endpoint() as second:
        urls = [first.url, second.url]
        load(second, "tuned-1", adapter)
        async with serving_over_http(database, ",".join(urls), **ALWAYS) as server:
            for agent in await agents_of(server, urls):
                await server.http.patch(f"/v1/agents/{agent}", json={"model": "tuned-1"})
                assert (await server.say(agent, "Hello."))["text"].startswith("I see")
            ready = (await server.http.get("/v1/ready")).json()
            load(first, "tuned-1", adapter)
            agreed = (await server.http.get("/v1/ready")).json()
    lacking = f"only {second.url} has tuned-1"
    assert lacking in str(ready)
    assert lacking not in str(agreed)
