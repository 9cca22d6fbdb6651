"""The load that GPU benchmarks make, against a scripted endpoint over real sockets, from a real client process."""

import json
import urllib.request
from collections.abc import Iterator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from benchmarks.load import Clients, Request, Turn, in_slots
from benchmarks.model_server import ModelServer
from benchmarks.recording import COMPLETIONS, recorded, recording_proxy, replay
from memserver.testing.scripted_rules import RULES
from memserver.testing.scripted_server import create_scripted_app
from tests.support.http_app import serving
from tests.support.servers import temporary_folder


@pytest.fixture(scope="module")
def clients() -> Iterator[Clients]:
    started = Clients(1)
    yield started
    started.close()


def body(text: str, *, model: str = "scripted", stream: bool = True) -> bytes:
    arguments = {"type": "object", "properties": {"message": {"type": "string"}}}
    answer = {"properties": {"tool": {"const": "send_message"}, "arguments": arguments}}
    asked = {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "response_format": {"json_schema": {"schema": {"anyOf": [answer]}}},
        "stream": stream,
    }
    return json.dumps(asked).encode()


@pytest.fixture(scope="module")
def model() -> Iterator[str]:
    with serving(create_scripted_app(RULES["echo"])) as url:
        yield url


def turn(*bodies: bytes) -> Turn:
    return Turn(tuple(Request(COMPLETIONS, each) for each in bodies))


def test_a_streamed_answer_is_timed_to_its_message_and_its_tokens_are_counted(
    clients: Clients, model: str
):
    run = clients.run([model], "openai", [[[turn(body("hello there"))]]])
    [outcome] = run.outcomes
    assert outcome.error == ""
    assert outcome.first_delta is not None
    assert outcome.first_character is not None
    assert 0 < outcome.first_delta <= outcome.first_character <= outcome.seconds
    assert outcome.steps == 1
    assert outcome.prompt_tokens > 0
    assert outcome.output_tokens > 0
    assert len(run.client_cpu) == 1


def test_a_whole_answer_has_no_first_character(clients: Clients, model: str):
    [outcome] = clients.run([model], "openai", [[[turn(body("hello", stream=False))]]]).outcomes
    assert (outcome.error, outcome.first_character, outcome.steps) == ("", None, 1)
    assert outcome.output_tokens > 0


def test_a_refused_request_is_an_error_of_its_turn_and_the_next_turn_continues(
    clients: Clients, model: str
):
    talk = [turn(body("hello", model="another")), turn(body("hello"))]
    refused, answered = clients.run([model], "openai", [[talk]]).outcomes
    assert refused.error.startswith("404")
    assert answered.error == ""


def test_an_endpoint_that_is_not_there_is_an_error(clients: Clients):
    [outcome] = clients.run(["http://127.0.0.1:9"], "openai", [[[turn(body("hello"))]]]).outcomes
    assert "Connect" in outcome.error


def test_conversations_run_in_as_many_slots_as_asked_and_turns_that_prepare_are_not_timed(
    clients: Clients, model: str
):
    prepared = Turn((Request("/tokenize", b'{"prompt": "a"}'),), timed=False)
    failing = Turn((Request("/nowhere", b"{}"),), timed=False)
    talks = [[prepared, turn(body(f"talk {number}"))] for number in range(5)]
    slots = in_slots([*talks, [failing]], 2)
    assert [len(slot) for slot in slots] == [3, 3]
    run = clients.run([model], "openai", slots)
    assert [outcome.error for outcome in run.outcomes] == [""] * 5
    assert len(run.unprepared) == 1


def test_what_is_recorded_is_distinguished_and_replayed_as_it_was(model: str):
    said = ["Note 3.1: hello", "Note 3.1: and on", "Note 3.2: again", "no mark"]
    with temporary_folder() as folder:
        file = folder / "bodies.jsonl"
        with recording_proxy(model, folder, file) as proxy:
            for text in said:
                data = body(text, stream=False)
                asked = urllib.request.Request(f"{proxy.url}{COMPLETIONS}", data)
                with urllib.request.urlopen(asked) as answer:
                    assert f"echo: {text}" in answer.read().decode()
        found = recorded(file)
    assert {number: len(bodies) for number, bodies in found[3].items()} == {1: 2, 2: 1}
    assert set(found) == {3}
    assert found[3][2] == [body("Note 3.2: again", stream=False)]
    first, second = replay(found[3], stream=True)
    assert [len(first.requests), len(second.requests)] == [2, 1]
    streamed = json.loads(second.requests[0].body)
    options = {"stream": True, "stream_options": {"include_usage": True}}
    assert streamed == {**json.loads(found[3][2][0]), **options}
    [_, again] = replay(found[3], stream=False)
    assert again.requests[0].body == found[3][2][0]


METRICS = """
# HELP vllm:prefix_cache_queries_total Prefix cache queries.
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 1200.0
vllm:prefix_cache_queries_created{engine="0",model_name="m"} 1.79e+09
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 300.0
vllm:prefix_cache_hits_total{engine="1",model_name="m"} 300.0
vllm:external_prefix_cache_hits_total{engine="0",model_name="m"} 7.0
"""


def test_the_prefix_cache_is_read_from_the_metrics_and_reset_until_it_says_so():
    answers = [False, True]

    async def metrics(_request: HttpRequest) -> Response:
        return PlainTextResponse(METRICS)

    async def reset(_request: HttpRequest) -> Response:
        return JSONResponse({"success": answers.pop(0)})

    routes = [Route("/metrics", metrics), Route("/reset_prefix_cache", reset, methods=["POST"])]
    with serving(Starlette(routes=routes)) as url:
        server = ModelServer(url)
        assert server.prefix_cache() == (1200, 600)
        assert server.reset_prefix_cache()
    assert answers == []


def test_a_server_without_a_prefix_cache_says_so(model: str):
    server = ModelServer(model)
    assert server.prefix_cache() == (0, 0)
    assert not server.reset_prefix_cache()
    assert server.card()["id"] == "scripted"
