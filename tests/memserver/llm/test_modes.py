"""How `auto` finds out what an endpoint takes: over a real socket, with endpoints that differ in it."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from memserver.cli.doctor import examine_model
from memserver.errors import (
    ModelNotFound,
    ModelRejected,
    ModelTimeout,
    ModelUnavailable,
    ProtocolViolation,
)
from memserver.llm.openai_compatible import ModelOptions, OpenAICompatible
from memserver.llm.requests import JsonAnswers
from memserver.llm.tool_schema import native_tools_text, tools_as_text
from memserver.openai_http.endpoint import Endpoint
from memserver.testing.scripted_rules import RULES
from memserver.testing.scripted_server import Abilities, create_scripted_app
from tests.support.http_app import Current
from tests.support.model_contract import NOW, PROMPT, SEND, TOOLS

READY = '{"tool": "report_ready", "arguments": {"ready": true}}'


def text(content: str, **more: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"content": content, **more}, "finish_reason": "stop"}]}


def native(name: str, arguments: str) -> dict[str, Any]:
    return text("", tool_calls=[{"function": {"name": name, "arguments": arguments}}])


def refused(status: int, message: str = "no") -> JSONResponse:
    return JSONResponse({"error": {"message": message}}, status)


class Stub:
    """An endpoint that answers the probe as a test sets it, and every turn by a call in text."""

    def __init__(self) -> None:
        self.to: dict[str, Any] = {"tools": text("Ready."), "json_schema": text("Ready.")}
        self.turn: Any = text('{"tool": "now"}')
        self.asked: list[str] = []
        self.bodies: list[dict[str, Any]] = []

    async def complete(self, request: Request) -> Response:
        body = await request.json()
        kind = (
            "tools" if "tools" in body else "json_schema" if "response_format" in body else "text"
        )
        probes = "report_ready" in json.dumps(body) or "you are ready" in json.dumps(body)
        self.asked.append(f"probe {kind}" if probes else kind)
        self.bodies.append(body)
        answer = self.to.get(kind, text("Ready.")) if probes else self.turn
        if callable(answer) and not isinstance(answer, Response):
            answer = answer(body)
        if answer == "never":
            await asyncio.Event().wait()
        return answer if isinstance(answer, Response) else JSONResponse(answer)


@pytest.fixture
def stub() -> Stub:
    return Stub()


@pytest.fixture
async def made(stub: Stub, current: Current, served: str) -> AsyncIterator[Any]:
    current.app = Starlette(routes=[Route("/v1/chat/completions", stub.complete, methods=["POST"])])
    models: list[OpenAICompatible] = []

    def make(timeout: float = 60, **options: Any) -> OpenAICompatible:
        endpoint = Endpoint(served, max_retries=0, timeout=timeout)
        clock = options.pop("clock", time.monotonic)
        models.append(OpenAICompatible(endpoint, ModelOptions(model="m", **options), clock=clock))
        return models[-1]

    yield make
    for model in models:
        await model.aclose()


async def call(model: OpenAICompatible) -> str:
    return (await model.call_tool(PROMPT, TOOLS, max_tokens=50)).call.name


async def test_an_endpoint_with_native_tools_is_asked_by_them(made, stub: Stub):
    stub.to["tools"] = native("report_ready", '{"ready": true}')
    stub.turn = native("now", "{}")
    model = made()
    assert await call(model) == "now"
    assert (model.mode, stub.asked) == ("tools", ["probe tools", "tools"])
    probe = stub.bodies[0]
    assert probe["tool_choice"] == "required"
    assert probe["tools"][0]["function"]["strict"] is True


@pytest.mark.parametrize(
    "answer",
    [
        text("I am ready."),
        text(READY),
        native("report_ready", '{"ready": "perhaps"}'),
        native("fly", "{}"),
        refused(400),
        refused(422),
        refused(404, "No endpoints found that support tool use."),
    ],
)
async def test_without_a_valid_native_call_a_schema_is_tried(made, stub: Stub, answer):
    stub.to = {"tools": answer, "json_schema": text(f" {READY}\n")}
    model = made()
    await call(model)
    assert model.mode == "json_schema"
    assert stub.asked == ["probe tools", "probe json_schema", "json_schema"]


@pytest.mark.parametrize(
    "answer",
    [
        text("I am ready."),
        text(f"Gladly: {READY}"),
        text('{"ready": true}'),
        text(""),
        refused(400),
    ],
)
async def test_without_a_valid_answer_to_a_schema_it_is_text(made, stub: Stub, answer):
    stub.to["json_schema"] = answer
    model = made()
    assert await call(model) == "now"
    assert (model.mode, stub.asked[-1]) == ("text", "text")
    system = stub.bodies[-1]["messages"][0]["content"]
    assert "- send_message: Say something to the user." in system
    assert not {"tools", "tool_choice", "response_format"} & stub.bodies[-1].keys()


async def test_thinking_in_front_of_an_answer_to_a_schema_does_not_count_against_it(made, stub):
    stub.to["json_schema"] = text(f"<think>Hm.</think>\n{READY}")
    model = made()
    await call(model)
    assert model.mode == "json_schema"


async def test_the_probe_of_a_schema_names_the_form_nowhere_else(made, stub: Stub):
    await call(made())
    assert "report_ready" not in json.dumps(stub.bodies[1]["messages"])


async def test_text_lists_the_tools_even_where_json_mode_need_not(made, stub: Stub):
    await call(made(mode="text", answers=JsonAnswers(list_tools=False)))
    assert "- now" in stub.bodies[0]["messages"][0]["content"]


async def test_the_probe_is_sent_once_for_many_turns_at_once_and_later(made, stub: Stub):
    model = made()
    await asyncio.gather(*(call(model) for _ in range(5)))
    await call(model)
    await model.write(PROMPT, max_tokens=50)
    assert stub.asked.count("probe tools") == stub.asked.count("probe json_schema") == 1
    assert stub.asked.count("text") == 7


async def test_a_summary_that_comes_first_is_what_probes(made, stub: Stub):
    model = made()
    await model.write(PROMPT, max_tokens=50)
    assert model.mode == "text"


@pytest.mark.parametrize("mode", ["tools", "json_schema", "text"])
async def test_a_mode_that_is_set_is_never_probed(made, stub: Stub, mode: str):
    await call(made(mode=mode))
    assert stub.asked == [mode]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (refused(401), ModelRejected),
        (refused(403), ModelRejected),
        (refused(404, "The model m does not exist."), ModelNotFound),
        (refused(429), ModelUnavailable),
        (refused(503), ModelUnavailable),
        ({"choices": []}, ModelUnavailable),
    ],
)
@pytest.mark.parametrize("asked", ["tools", "json_schema"])
async def test_a_failure_that_says_nothing_of_the_mode_is_raised_and_forgotten(
    made, stub: Stub, asked: str, answer, error
):
    stub.to[asked] = answer
    model = made()
    with pytest.raises(error):
        await call(model)
    assert model.mode == "auto"
    stub.to[asked] = native("report_ready", '{"ready": true}')
    await call(model)
    assert model.mode in {"tools", "text"}


async def test_an_endpoint_that_refuses_everything_is_not_taken_for_one_of_text(made, stub: Stub):
    stub.to = {kind: refused(400, "The key is wrong.") for kind in ("tools", "json_schema", "text")}
    model = made()
    with pytest.raises(ModelRejected, match="The key is wrong"):
        await call(model)
    assert model.mode == "auto"


async def test_a_probe_that_times_out_or_is_left_is_sent_again(made, stub: Stub):
    stub.to["tools"] = "never"
    hasty = made(timeout=2)
    with pytest.raises(ModelTimeout):
        await call(hasty)
    stub.to["tools"] = native("report_ready", '{"ready": true}')
    await call(hasty)
    assert hasty.mode == "tools"


async def test_without_a_connection_nothing_is_decided():
    model = OpenAICompatible(
        Endpoint("http://127.0.0.1:9/v1", max_retries=0), ModelOptions(model="m")
    )
    with pytest.raises(ModelUnavailable):
        await call(model)
    assert model.mode == "auto"
    await model.aclose()


async def test_the_choice_is_logged_and_a_fallback_is_a_warning(made, stub: Stub, caplog):
    stub.to["tools"] = native("report_ready", '{"ready": true}')
    with caplog.at_level(logging.INFO, "memserver.llm"):
        await call(made())
        stub.to["tools"] = refused(400, "This model has no tools.")
        await call(made())
    assert [(each.levelname, each.message) for each in caplog.records] == [
        ("INFO", "The model m is asked by native tool calls."),
        (
            "WARNING",
            "The model m is asked by the text of its system message: native tool calls refused: "
            '"This model has no tools."; a JSON schema for its answer ignored.',
        ),
    ]


LOADING = refused(400, "The model is being loaded.")
PASSING = [LOADING, refused(500), refused(501), refused(404, "Not here."), refused(422, "Hm.")]


class Clock:
    """Seconds that a test lets pass."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("answer", PASSING)
async def test_a_refusal_that_does_not_speak_of_tools_is_tried_again_soon(made, stub, answer):
    clock = Clock()
    stub.to = {"tools": answer, "json_schema": text(READY)}
    model = made(clock=clock)
    await call(model)
    assert model.mode == "json_schema"
    stub.to["tools"] = native("report_ready", '{"ready": true}')
    clock.now += 59
    await call(model)
    assert (model.mode, stub.asked.count("probe tools")) == ("json_schema", 1)
    clock.now += 2
    await call(model)
    assert (model.mode, stub.asked.count("probe tools")) == ("tools", 2)


async def test_what_keeps_failing_so_is_tried_again_later_and_later(made, stub: Stub):
    clock = Clock()
    stub.to = {"tools": LOADING, "json_schema": text(READY)}
    model = made(clock=clock)
    probes = []
    for _ in range(10):
        await call(model)
        probes.append(stub.asked.count("probe tools"))
        clock.now += 61
    assert probes == [1, 2, 2, 3, 3, 3, 3, 4, 4, 4]


@pytest.mark.parametrize(
    "answer", [text("I am ready."), refused(404, "No endpoints found that support tool use.")]
)
async def test_a_clear_fallback_is_tried_again_after_an_hour(made, stub: Stub, answer):
    clock = Clock()
    stub.to = {"tools": answer, "json_schema": text(READY)}
    model = made(clock=clock)
    await call(model)
    clock.now += 3599
    await call(model)
    assert stub.asked.count("probe tools") == 1
    stub.to["tools"] = native("report_ready", '{"ready": true}')
    clock.now += 2
    await call(model)
    assert model.mode == "tools"
    assert model.profile.changes == ()


async def test_a_failure_when_it_is_asked_again_leaves_what_is_known(made, stub: Stub):
    clock = Clock()
    stub.to = {"tools": LOADING, "json_schema": text(READY)}
    model = made(clock=clock)
    await call(model)
    stub.to["tools"] = refused(429)
    clock.now += 61
    assert await call(model) == "now"
    assert model.mode == "json_schema"


async def test_an_answer_cut_off_by_thinking_gets_more_room_before_anything_is_concluded(
    made, stub
):
    cut = text("", reasoning_content="Hm, let me think.")
    cut["choices"][0]["finish_reason"] = "length"

    def tools(body: dict[str, Any]) -> dict[str, Any]:
        return native("report_ready", '{"ready": true}') if body["max_tokens"] >= 2048 else cut

    stub.to["tools"] = tools
    stub.turn = native("now", "{}")
    model = made()
    await call(model)
    assert (model.mode, stub.asked) == ("tools", ["probe tools", "probe tools", "tools"])


async def test_three_replies_in_a_row_without_a_call_have_the_endpoint_asked_again(
    made, stub: Stub
):
    clock = Clock()
    stub.to["tools"] = native("report_ready", '{"ready": true}')
    stub.turn = native("now", "{}")
    model = made(clock=clock)
    await call(model)
    stub.to = {"tools": refused(400, "tools are unsupported"), "json_schema": text(READY)}
    stub.turn = text("I think so.")
    clock.now += 100
    for _ in range(3):
        with pytest.raises(ProtocolViolation):
            await call(model)
    stub.turn = text('{"tool": "now"}')
    assert await call(model) == "now"
    assert model.mode == "json_schema"


async def test_replies_without_a_call_have_it_asked_once_a_minute_at_most(made, stub: Stub):
    clock = Clock()
    stub.to["tools"] = native("report_ready", '{"ready": true}')
    stub.turn = text("I think so.")
    model = made(clock=clock)
    for _ in range(12):
        with pytest.raises(ProtocolViolation):
            await call(model)
    assert stub.asked.count("probe tools") == 1
    clock.now += 61
    with pytest.raises(ProtocolViolation):
        await call(model)
    assert stub.asked.count("probe tools") == 2


async def test_a_model_that_is_not_found_is_asked_about_again_when_it_is_back(made, stub: Stub):
    stub.to = {"tools": text("Hm."), "json_schema": text(READY)}
    model = made()
    await call(model)
    stub.turn = refused(404, "The model m does not exist.")
    with pytest.raises(ModelNotFound):
        await call(model)
    assert model.mode == "auto"
    stub.to["tools"], stub.turn = native("report_ready", '{"ready": true}'), native("now", "{}")
    await call(model)
    assert model.mode == "tools"


@pytest.mark.parametrize("tools", [[NOW], [SEND], TOOLS])
async def test_before_the_probe_the_longer_text_counts(made, tools):
    texts = [native_tools_text(tools), tools_as_text(tools)]
    counts = await made().count_tokens([made().tools_text(tools), *texts])
    assert counts[0] == max(counts[1:])


@pytest.mark.parametrize(
    ("abilities", "mode"),
    [
        (Abilities(), "tools"),
        (Abilities(tools="refused"), "json_schema"),
        (Abilities(tools="ignored"), "json_schema"),
        (Abilities("refused", "ignored"), "text"),
        (Abilities("ignored", "refused"), "text"),
    ],
)
async def test_the_doctor_says_how_the_model_is_asked(current: Current, served, abilities, mode):
    current.app = create_scripted_app(RULES["echo"], abilities=abilities)
    model = OpenAICompatible(Endpoint(served, max_retries=0))
    findings = [finding async for finding in examine_model(model)]
    await model.aclose()
    assert findings[-1].name == "model"
    assert findings[-1].detail.endswith(f", mode {mode}")
