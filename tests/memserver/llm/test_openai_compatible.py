"""What goes over the wire to an endpoint, and how the model's name and window are found."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from memserver.cli.doctor import examine_model
from memserver.errors import (
    ContextOverflow,
    ModelNotFound,
    ModelRejected,
    ModelUnavailable,
    ProtocolViolation,
)
from memserver.llm.openai_compatible import ModelOptions, OpenAICompatible
from memserver.openai_http.endpoint import Endpoint
from tests.support.http_app import Current
from tests.support.model_contract import CALL, NOW, PROMPT, TOOLS

ASSUMED = "8192 tokens, assumed: nobody says; MEMSERVER_LLM_CONTEXT_WINDOW sets it"


def completion(**message: Any) -> dict[str, Any]:
    return {"choices": [{"message": message, "finish_reason": "stop"}]}


NATIVE = completion(content=None, tool_calls=[{"function": {"name": "now", "arguments": "{}"}}])
TEXTUAL = completion(content='{"tool": "now", "arguments": {}}')


class Stub:
    """An endpoint that records what it is asked and answers what a test sets."""

    def __init__(self) -> None:
        self.answer: Any = NATIVE
        self.cards: Any = [{"id": "m", "max_model_len": 2048}]
        self.bodies: list[dict[str, Any]] = []
        self.listings = 0
        self.left = asyncio.Event()

    async def complete(self, request: Request) -> Response:
        self.bodies.append(await request.json())
        if self.answer == "endless":
            return StreamingResponse(self.endless(), media_type="text/event-stream")
        return self.answer if isinstance(self.answer, Response) else JSONResponse(self.answer)

    async def endless(self) -> AsyncIterator[str]:
        delta = {
            "tool_calls": [{"function": {"name": "send_message", "arguments": '{"message": "a'}}]
        }
        yield f"data: {json.dumps({'choices': [{'delta': delta}]})}\n\n"
        await asyncio.Event().wait()

    async def models(self, request: Request) -> Response:
        self.listings += 1
        if isinstance(self.cards, Response):
            return self.cards
        if self.cards is None:
            return JSONResponse({"error": {"message": "no such path"}}, 404)
        return JSONResponse({"data": self.cards})


class Clock:
    """Seconds that a test lets pass."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def stub() -> Stub:
    return Stub()


@pytest.fixture
def url(stub: Stub, current: Current, served: str) -> str:
    current.app = Starlette(
        routes=[
            Route("/v1/chat/completions", stub.complete, methods=["POST"]),
            Route("/v1/models", stub.models),
        ]
    )
    return served


@pytest.fixture
async def made(url: str) -> AsyncIterator[Any]:
    models: list[OpenAICompatible] = []

    def make(**options: Any) -> OpenAICompatible:
        clock = options.pop("clock", time.monotonic)
        given = ModelOptions(**{"mode": "tools", **options})
        models.append(OpenAICompatible(Endpoint(url, max_retries=0), given, clock=clock))
        return models[-1]

    yield make
    for model in models:
        await model.aclose()


async def test_native_mode_sends_strict_tools_and_demands_a_call(made, stub: Stub):
    await made().call_tool(PROMPT, TOOLS, max_tokens=7)
    (body,) = stub.bodies
    assert body["tool_choice"] == "required"
    assert body["parallel_tool_calls"] is False
    assert body["max_tokens"] == 7
    assert [tool["function"]["strict"] for tool in body["tools"]] == [True, True, True]
    assert "stream" not in body
    assert "response_format" not in body


async def test_prompts_draw_with_chance_of_their_own_that_a_seed_makes_repeatable(made, stub: Stub):
    async def seeds(**options: Any) -> list[int | None]:
        stub.bodies.clear()
        model = made(**options)
        for prompt in (PROMPT, PROMPT, PROMPT[:1]):
            await model.call_tool(prompt, TOOLS, max_tokens=7)
        return [body.get("seed") for body in stub.bodies]

    first, again, other = await seeds(seed=1)
    assert first == again != other
    assert await seeds(seed=1) == [first, again, other]
    assert set(await seeds(seed=2)).isdisjoint({first, other})
    assert await seeds(seed=1, body={"seed": 5}) == [5, 5, 5]
    assert await seeds(seed=1, body={"seed": None}) == [None, None, None]
    assert await seeds() == [None, None, None]


async def test_with_one_tool_native_mode_names_it(made, stub: Stub):
    await made().call_tool(PROMPT, [NOW], max_tokens=7)
    assert stub.bodies[0]["tool_choice"] == {"type": "function", "function": {"name": "now"}}


async def test_native_mode_sends_calls_and_results_as_such(made, stub: Stub):
    await made().call_tool(PROMPT, TOOLS, max_tokens=7)
    _, _, step, result, notice, _ = stub.bodies[0]["messages"]
    (call,) = step["tool_calls"]
    assert step["content"] == "I should look."
    assert json.loads(call["function"]["arguments"]) == CALL.arguments
    assert result == {"role": "tool", "tool_call_id": call["id"], "content": "No results found."}
    assert notice == {"role": "user", "content": "[system] Memory is nearly full."}


async def test_json_mode_sends_a_schema_and_lists_the_tools_in_the_system_message(made, stub: Stub):
    stub.answer = TEXTUAL
    await made(mode="json_schema").call_tool(PROMPT, TOOLS, max_tokens=7)
    (body,) = stub.bodies
    assert "tools" not in body
    assert len(body["response_format"]["json_schema"]["schema"]["anyOf"]) == 3
    system = body["messages"][0]["content"]
    assert system.startswith("You remember.")
    assert "- send_message: Say something to the user." in system


async def test_json_mode_sends_calls_as_json_and_results_marked_as_such(made, stub: Stub):
    stub.answer = TEXTUAL
    await made(mode="json_schema").call_tool(PROMPT, TOOLS, max_tokens=7)
    _, _, step, result, _, _ = stub.bodies[0]["messages"]
    assert step["role"] == "assistant"
    assert json.loads(step["content"]) == {"tool": "search", "arguments": CALL.arguments}
    assert result == {"role": "user", "content": "[result of search]\nNo results found."}


async def test_plain_text_is_requested_without_tools(made, stub: Stub):
    stub.answer = completion(content="<think>hm</think> A summary. ")
    written = await made(mode="json_schema").write(PROMPT, max_tokens=7)
    assert written.text == "A summary."
    assert not {"tools", "response_format", "tool_choice"} & stub.bodies[0].keys()


@pytest.mark.parametrize("content", [None, "", " ", "<think>only this"])
async def test_a_summary_of_nothing_is_a_violation(made, stub: Stub, content: object):
    stub.answer = completion(content=content)
    with pytest.raises(ProtocolViolation):
        await made().write(PROMPT, max_tokens=7)


async def test_more_can_be_put_into_the_body_and_fields_taken_away(made, stub: Stub):
    body = {"temperature": 0.5, "max_tokens": None, "max_completion_tokens": 9}
    await made(body=body).call_tool(PROMPT, TOOLS, max_tokens=7)
    sent = stub.bodies[0]
    assert (sent["temperature"], sent["max_completion_tokens"]) == (0.5, 9)
    assert "max_tokens" not in sent


async def test_lone_surrogates_in_a_prompt_do_not_stop_it(made, stub: Stub):
    await made().call_tool(PROMPT, TOOLS, max_tokens=7)
    assert stub.bodies[0]["messages"][-1]["content"].startswith("Lone ?, NUL")


@pytest.mark.parametrize(
    "message",
    [
        {"content": [{"type": "text", "text": '{"tool": "now"}'}]},
        {"content": None, "tool_calls": [{"function": {"name": "now"}}]},
        {"tool_calls": [{"function": {"name": "now", "arguments": {}}}]},
    ],
)
@pytest.mark.parametrize("mode", ["tools", "json_schema", "text"])
async def test_other_shapes_of_a_call_are_understood(made, stub: Stub, message: Any, mode: str):
    stub.answer = completion(**message)
    reply = await made(mode=mode).call_tool(PROMPT, TOOLS, max_tokens=7)
    assert reply.call.name == "now"


@pytest.mark.parametrize(
    "answer",
    [
        completion(content=3),
        completion(tool_calls={"name": "now"}),
        completion(tool_calls=["now", None]),
        completion(tool_calls=[{"function": "now"}]),
        {"choices": [None]},
        {"choices": ["now"]},
        {"choices": [{"message": [], "finish_reason": 3}], "usage": []},
    ],
)
async def test_a_shape_that_makes_no_sense_is_a_violation(made, stub: Stub, answer: Any):
    stub.answer = answer
    with pytest.raises(ProtocolViolation):
        await made().call_tool(PROMPT, TOOLS, max_tokens=7)


@pytest.mark.parametrize("answer", [{}, {"choices": []}, {"error": {"message": "loading"}}])
async def test_an_answer_without_a_choice_is_the_endpoints_failure(made, stub: Stub, answer: Any):
    stub.answer = answer
    with pytest.raises(ModelUnavailable):
        await made().call_tool(PROMPT, TOOLS, max_tokens=7)


async def test_without_a_name_the_first_listed_model_is_asked_once(made, stub: Stub):
    model = made()
    await asyncio.gather(*(model.call_tool(PROMPT, TOOLS, max_tokens=7) for _ in range(3)))
    assert model.name == "m"
    assert [body["model"] for body in stub.bodies] == ["m"] * 3
    assert await model.context_window() == 2048
    assert stub.listings == 1


async def test_a_named_model_with_a_given_window_is_never_looked_up(made, stub: Stub):
    model = made(model="mine", context_window=1000)
    await model.call_tool(PROMPT, TOOLS, max_tokens=7)
    assert await model.context_window() == 1000
    assert stub.listings == 0


@pytest.mark.parametrize(
    ("cards", "window"),
    [
        ([{"id": "other", "max_model_len": 9}, {"id": "m", "max_model_len": 512}], 512),
        ([{"id": "m", "parent": "base"}, {"id": "base", "max_model_len": 4096}], 4096),
        ([{"id": "m", "context_length": 1024}], 1024),
        ([{"id": "m"}], 8192),
        ([{"id": "m", "max_model_len": None}], 8192),
        ([], 8192),
        (None, 8192),
    ],
)
async def test_the_window_is_what_the_endpoint_says_else_8192(
    made, stub: Stub, cards: list[dict[str, Any]] | None, window: int
):
    stub.cards = cards
    assert await made(model="m").context_window() == window


@pytest.mark.parametrize(
    ("cards", "given", "found"),
    [
        ([{"id": "m", "max_model_len": 512}], None, "512 tokens"),
        ([{"id": "m"}], 1000, "1000 tokens"),
        ([{"id": "m"}], None, ASSUMED),
        ([], None, ASSUMED),
    ],
)
async def test_doctor_says_where_the_window_is_assumed(
    made, stub: Stub, cards: list[dict[str, Any]], given: int | None, found: str
):
    stub.cards = cards
    model = made(model="m", context_window=given)
    window = await anext(examine_model(model))
    assert (window.name, window.detail) == ("context window", found)


@pytest.mark.parametrize(
    ("reported", "given", "window"), [(1024, 8192, 1024), (8192, 1024, 1024), (None, 2048, 2048)]
)
async def test_a_window_that_is_a_limit_holds_where_the_endpoint_says_no_smaller_one(
    made, stub: Stub, reported: int | None, given: int, window: int
):
    stub.cards = [{"id": "m", "max_model_len": reported}]
    model = made(model="m", context_window=given, window_is_limit=True)
    assert await model.context_window() == window


async def test_a_window_that_was_guessed_for_a_missing_model_is_forgotten(made, stub: Stub):
    stub.cards = [{"id": "m", "max_model_len": 4096}, {"id": "n", "max_model_len": 4096}]
    model = made(model="late")
    assert await model.context_window() == 8192
    stub.answer = JSONResponse({"error": {"message": "The model late does not exist."}}, 404)
    with pytest.raises(ModelNotFound) as caught:
        await model.call_tool(PROMPT, TOOLS, max_tokens=7)
    stub.cards = [{"id": "late", "max_model_len": 2048}]
    assert await model.context_window() == 2048
    assert caught.value.message == "The endpoint does not have the model late."
    assert "It has: m, n. Load an adapter with `memserver models add`" in caught.value.hint
    assert "It said: The model late does not exist." in caught.value.hint


@pytest.mark.parametrize("cards", [[], [{}]])
async def test_an_endpoint_that_lists_no_model_needs_a_name(made, stub: Stub, cards):
    stub.cards = cards
    with pytest.raises(ModelUnavailable) as caught:
        await made().call_tool(PROMPT, TOOLS, max_tokens=7)
    assert "MEMSERVER_LLM_MODEL" in caught.value.hint


async def test_a_failed_look_up_is_tried_again(url: str, stub: Stub):
    model = OpenAICompatible(Endpoint("http://127.0.0.1:9/v1", max_retries=0))
    for _ in range(2):
        with pytest.raises(ModelUnavailable):
            await model.context_window()
    await model.aclose()


async def test_a_stream_can_be_abandoned_and_the_model_used_again(made, stub: Stub):
    model = made(model="m")
    stub.answer = "endless"
    heard = asyncio.Event()
    asked = asyncio.create_task(
        model.call_tool(PROMPT, TOOLS, max_tokens=7, on_text=lambda text: heard.set())
    )
    await heard.wait()
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    stub.answer = NATIVE
    assert (await model.call_tool(PROMPT, TOOLS, max_tokens=7)).call.name == "now"


async def test_a_listener_that_fails_ends_the_stream_with_its_own_error(made, stub: Stub):
    stub.answer = "endless"

    def refuse(text: str) -> None:
        raise LookupError(text)

    with pytest.raises(LookupError):
        await made(model="m").call_tool(PROMPT, TOOLS, max_tokens=7, on_text=refuse)


@pytest.mark.parametrize("mode", ["tools", "json_schema", "text"])
def test_what_tools_add_to_a_prompt_can_be_counted(mode):
    model = OpenAICompatible(Endpoint("http://127.0.0.1:9/v1"), ModelOptions(mode=mode))
    assert "Say something to the user." in model.tools_text(TOOLS)


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        ("m", "m"),
        ("gemini-2.5-flash", "models/gemini-2.5-flash"),
        ("llama3.2", "llama3.2:latest"),
        ("deepseek/deepseek-v4:free", "deepseek/deepseek-v4"),
        (None, "whatever"),
    ],
)
async def test_a_check_asks_nothing_of_a_model_that_is_listed(
    made, stub: Stub, name: str | None, listed: str
):
    stub.cards = [{"id": "other"}, {"id": listed}]
    await made(model=name).check()
    assert (stub.listings, stub.bodies) == (1, [])


ODD_LISTS = [
    JSONResponse({"error": "no"}, 404),
    JSONResponse({"error": "This key may not list models."}, 403),
    JSONResponse({"error": "Method not allowed"}, 405),
    JSONResponse({"error": "no"}, 401),
    JSONResponse({"error": "Internal error"}, 500),
    JSONResponse({"data": None}),
    JSONResponse({"models": [{"name": "m"}]}),
    JSONResponse([]),
    JSONResponse([{"id": "other"}]),
    Response("<html>Sign in</html>", media_type="text/html"),
    JSONResponse({"data": [{"id": "other"}]}),
]


@pytest.mark.parametrize("cards", ODD_LISTS)
async def test_no_list_of_models_keeps_a_named_model_from_answering(made, stub: Stub, cards):
    stub.cards = cards
    model = made(model="m")
    assert (await model.context_window(), model.window_is_assumed) == (8192, True)
    assert (await model.call_tool(PROMPT, TOOLS, max_tokens=7)).call.name == "now"
    await model.check()


@pytest.mark.parametrize("cards", [None, *ODD_LISTS[:6], *ODD_LISTS[7:]])
async def test_a_model_that_no_list_names_is_ready_if_a_small_request_works(
    made, stub: Stub, cards
):
    stub.cards = cards
    stub.answer = completion(content="OK")
    clock = Clock()
    model = made(model="m", clock=clock)
    await model.check()
    await model.check()
    assert len(stub.bodies) == 1
    assert stub.bodies[0]["max_tokens"] <= 16
    clock.now += 61
    await model.check()
    assert len(stub.bodies) == 2


@pytest.mark.parametrize(
    ("status", "reported", "error"),
    [
        (401, "Incorrect API key provided: sk-…", ModelRejected),
        (404, "The model m does not exist", ModelNotFound),
        (503, "Overloaded", ModelUnavailable),
    ],
)
async def test_a_model_that_answers_nothing_is_not_ready_and_says_why_in_the_endpoints_words(
    made, stub: Stub, status: int, reported: str, error: type[Exception]
):
    stub.cards = None
    stub.answer = JSONResponse({"error": {"message": reported}}, status)
    clock = Clock()
    model = made(model="m", clock=clock)
    for _ in range(3):
        with pytest.raises(error) as caught:
            await model.check()
        assert reported in caught.value.message + caught.value.hint
    assert len(stub.bodies) == 1
    stub.answer = completion(content="OK")
    clock.now += 6
    await model.check()


async def test_a_call_that_worked_shows_for_a_minute_that_the_model_is_ready(made, stub: Stub):
    clock = Clock()
    model = made(model="m", clock=clock, context_window=2048)
    await model.call_tool(PROMPT, TOOLS, max_tokens=7)
    await model.check()
    assert (stub.listings, len(stub.bodies)) == (0, 1)


async def test_a_list_that_failed_is_requested_again_after_a_while(made, stub: Stub):
    stub.cards = JSONResponse({"error": "no"}, 401)
    clock = Clock()
    model = made(model="m", clock=clock)
    assert [await model.context_window() for _ in range(3)] == [8192] * 3
    assert stub.listings == 1
    stub.cards = [{"id": "m", "max_model_len": 2048}]
    clock.now += 61
    assert await model.context_window() == 2048


async def test_a_window_that_an_overflow_names_is_learned(made, stub: Stub):
    stub.cards = None
    model = made(model="m")
    assert (await model.context_window(), model.window_is_assumed) == (8192, True)
    reported = (
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."
    )
    stub.answer = JSONResponse({"error": {"message": reported}}, 400)
    with pytest.raises(ContextOverflow):
        await model.call_tool(PROMPT, TOOLS, max_tokens=7)
    assert (await model.context_window(), model.window_is_assumed) == (4096, False)


async def test_of_two_windows_the_smaller_holds(made, stub: Stub):
    model = made(model="m", context_window=2048)
    reported = (
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."
    )
    stub.answer = JSONResponse({"error": {"message": reported}}, 400)
    with pytest.raises(ContextOverflow):
        await model.call_tool(PROMPT, TOOLS, max_tokens=7)
    assert await model.context_window() == 2048
