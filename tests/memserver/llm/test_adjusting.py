"""A refused request is sent again in the form that the endpoint takes, over a real socket, in the providers' own words."""

import json
import logging
from collections.abc import AsyncIterator, Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from memserver.errors import (
    ModelRefused,
    ModelRejected,
    ModelUnavailable,
    ProtocolViolation,
    SetupError,
)
from memserver.llm.openai_compatible import ModelOptions, OpenAICompatible
from memserver.messages import Picture, PromptMessage, TokenUsage
from memserver.openai_http.endpoint import Endpoint
from tests.support.http_app import Current
from tests.support.model_contract import NOW, PROMPT, TOOLS

Body = dict[str, Any]
Refusal = tuple[int, Any] | None
PLAIN = PROMPT[:2]
PICTURE = Picture("0" * 64, "image/png", 2, 3, data=b"png")
SHOWN = [
    PROMPT[0],
    PromptMessage("user", "Look"),
    PromptMessage("user", "This", pictures=(PICTURE,)),
]


def openai(message: str, status: int = 400, **more: Any) -> Refusal:
    return status, {"error": {"message": message, "type": "invalid_request_error", **more}}


def unknown(name: str) -> Refusal:
    return openai(f"Unsupported parameter: '{name}' is not supported with this model.", param=name)


def fastapi(*place: Any, value: Any = None) -> tuple[int, Any]:
    entry = {
        "type": "extra_forbidden",
        "loc": ["body", *place],
        "msg": "Extra inputs are not permitted",
        "input": value,
    }
    return 422, {"detail": [entry]}


def mistral(*place: Any) -> Refusal:
    detail = fastapi(*place)[1]
    return 422, {"object": "error", "message": detail, "type": "invalid_request_error"}


class Stub:
    """An endpoint that refuses what a test says, and answers the rest by a call, in the way it is asked."""

    def __init__(self) -> None:
        self.refuse: Callable[[Body], Refusal] = lambda body: None
        self.reply: Callable[[Body], Body] = answer
        self.bodies: list[Body] = []

    async def complete(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        refusal = self.refuse(body)
        if refusal is not None:
            return JSONResponse(refusal[1], refusal[0])
        reply = self.reply(body)
        if not body.get("stream"):
            return JSONResponse(reply)
        [choice] = reply["choices"]
        events = [
            {"choices": [{"delta": choice["message"]}]},
            {"choices": [{"delta": {}, "finish_reason": choice["finish_reason"]}]},
        ]
        lines = [f"data: {json.dumps(event)}\n\n" for event in events]
        return StreamingResponse(iter([*lines, "data: [DONE]\n\n"]), media_type="text/event-stream")

    @property
    def last(self) -> Body:
        return self.bodies[-1]


def answer(body: Body) -> Body:
    name, arguments = "now", {}
    if "report_ready" in json.dumps(body) or "you are ready" in json.dumps(body):
        name, arguments = "report_ready", {"ready": True}
    if "tools" in body:
        function = {"name": name, "arguments": json.dumps(arguments)}
        message: Body = {
            "content": None,
            "tool_calls": [{"index": 0, "id": "a", "function": function}],
        }
    else:
        message = {"content": json.dumps({"tool": name, "arguments": arguments})}
    return {"choices": [{"message": message, "finish_reason": "stop"}]}


@pytest.fixture
def stub() -> Stub:
    return Stub()


@pytest.fixture
async def made(stub: Stub, current: Current, served: str) -> AsyncIterator[Any]:
    current.app = Starlette(routes=[Route("/v1/chat/completions", stub.complete, methods=["POST"])])
    models: list[OpenAICompatible] = []

    def make(**options: Any) -> OpenAICompatible:
        endpoint = Endpoint(served, max_retries=0)
        models.append(OpenAICompatible(endpoint, ModelOptions(model="m", **options)))
        return models[-1]

    yield make
    for model in models:
        await model.aclose()


async def call(model: OpenAICompatible, *, streamed: bool = False, tools: Any = TOOLS) -> str:
    sink = (lambda text: None) if streamed else None
    return (await model.call_tool(PROMPT, tools, max_tokens=50, on_text=sink)).call.name


def gpt5(body: Body) -> Refusal:
    if "max_tokens" in body:
        return openai(
            "Unsupported parameter: 'max_tokens' is not supported with this model. "
            "Use 'max_completion_tokens' instead.",
            param="max_tokens",
            code="unsupported_parameter",
        )
    return None


def o4_mini(body: Body) -> Refusal:
    return gpt5(body) or (unknown("parallel_tool_calls") if "parallel_tool_calls" in body else None)


def gpt56(body: Body) -> Refusal:
    if refusal := gpt5(body):
        return refusal
    if "tools" in body and body.get("reasoning_effort") != "none":
        return openai(
            "Function tools with reasoning_effort are not supported for gpt-5.6 in /v1/chat/completions. "
            "To use function tools, use /v1/responses or set reasoning_effort to 'none'.",
            param="reasoning_effort",
        )
    return None


def lm_studio(body: Body) -> Refusal:
    if isinstance(body.get("tool_choice"), dict):
        reported = (
            "Invalid tool_choice type: 'object'. Supported string values: none, auto, required"
        )
        return 400, {"error": reported}
    return None


def dashscope(body: Body) -> Refusal:
    if body.get("tool_choice") not in {None, "auto", "none"}:
        return openai(
            "<400> InternalError.Algo.InvalidParameter: The tool_choice parameter does not support being "
            "set to required or object in thinking mode"
        )
    return None


def deepseek(body: Body) -> Refusal:
    if body.get("tool_choice") not in {None, "auto", "none"}:
        return openai("Thinking mode does not support this tool_choice")
    return None


def openrouter_choice(body: Body) -> Refusal:
    if "tool_choice" in body:
        return openai("No endpoints found that support the provided 'tool_choice' value.", 404)
    return None


def openrouter_any(body: Body) -> Refusal:
    if {"parallel_tool_calls", "tool_choice"} & body.keys():
        reported = "No endpoints found that can handle the requested parameters."
        return 404, {"error": {"message": reported, "code": 404}}
    return None


def cohere_strict(body: Body) -> Refusal:
    if any("strict" in tool["function"] for tool in body.get("tools", ())):
        return 422, {"message": "unknown field: parameter 'strict' is not a valid field."}
    return None


def gemini_seed(body: Body) -> Refusal:
    if "seed" in body:
        reported = 'Invalid JSON payload received. Unknown name "seed": Cannot find field.'
        return 400, [{"error": {"code": 400, "message": reported, "status": "INVALID_ARGUMENT"}}]
    return None


def refusing(name: str, refusal: Refusal) -> Callable[[Body], Refusal]:
    return lambda body: refusal if name in body else None


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("mode", ["auto", "tools"])
@pytest.mark.parametrize(
    ("refuse", "field", "value"),
    [
        (gpt5, "max_completion_tokens", 50),
        (o4_mini, "parallel_tool_calls", None),
        (gpt56, "reasoning_effort", "none"),
        (dashscope, "tool_choice", "auto"),
        (deepseek, "tool_choice", "auto"),
        (openrouter_choice, "tool_choice", None),
        (openrouter_any, "tool_choice", None),
        (
            refusing("tool_choice", openai("Unrecognized request argument: tool_choice")),
            "tool_choice",
            None,
        ),
        (
            refusing("parallel_tool_calls", fastapi("parallel_tool_calls", value=False)),
            "parallel_tool_calls",
            None,
        ),
        (refusing("max_tokens", mistral("max_tokens")), "max_completion_tokens", 50),
        (gemini_seed, "seed", None),
        (
            refusing(
                "seed",
                (500, {"error": {"message": "anthropic does not support parameters: {'seed': 1}"}}),
            ),
            "seed",
            None,
        ),
    ],
)
async def test_native_tools_are_requested_in_the_form_that_is_taken(
    made, stub: Stub, mode: str, streamed: bool, refuse, field: str, value: object
):
    stub.refuse = refuse
    model = made(mode=mode, seed=1)
    assert await call(model, streamed=streamed) == "now"
    assert "tools" in stub.last
    assert stub.last.get(field) == value
    asked = len(stub.bodies)
    await call(model, streamed=streamed)
    assert len(stub.bodies) == asked + 1
    assert model.mode == "tools"


async def test_of_one_tool_the_object_gives_way_to_the_word(made, stub: Stub):
    stub.refuse = lm_studio
    model = made()
    await call(model, tools=[NOW])
    assert stub.last["tool_choice"] == "required"
    await call(model, tools=[NOW])
    assert len(stub.bodies) == 4  # the probe, a refusal, and two calls


async def test_tools_without_strict_where_that_is_unknown(made, stub: Stub):
    stub.refuse = cohere_strict
    assert await call(made()) == "now"
    assert all("strict" not in tool["function"] for tool in stub.last["tools"])


@pytest.mark.parametrize(
    "refusal", [mistral("stream_options"), fastapi("stream_options"), unknown("stream_options")]
)
async def test_a_stream_is_requested_without_options_where_those_are_unknown(
    made, stub: Stub, refusal: Refusal
):
    stub.refuse = refusing("stream_options", refusal)
    assert await call(made(), streamed=True) == "now"
    assert stub.last["stream"] is True


def openai_schema(body: Body) -> Refusal:
    if "tools" in body:
        return fastapi("tools")
    schema = body.get("response_format", {}).get("json_schema", {}).get("schema")
    if schema is not None and schema.get("type") != "object":
        return openai(
            "Invalid schema for response_format 'tool_call': schema must be a JSON Schema of "
            "'type: \"object\"', got 'type: \"None\"'.",
            param="response_format",
        )
    return None


async def test_a_schema_whose_root_is_refused_gets_an_object_for_its_root(made, stub: Stub):
    stub.refuse = openai_schema
    model = made()
    assert await call(model) == "now"
    assert model.mode == "json_schema"
    asked = stub.last["response_format"]["json_schema"]
    assert asked["strict"] is True
    assert asked["schema"]["properties"]["tool"]["enum"] == [spec.name for spec in TOOLS]
    assert set(asked["schema"]["required"]) == {"tool", "arguments"}


@pytest.mark.parametrize(
    ("refusal", "mode"),
    [
        (openai("registry.ollama.ai/library/gemma:latest does not support tools"), "json_schema"),
        (openai("No endpoints found that support tool use.", 404), "json_schema"),
        (
            openai(
                '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
            ),
            "json_schema",
        ),
        (openai("tools param requires --jinja flag", 500), "json_schema"),
        (openai("Unrecognized request argument supplied: tools"), "json_schema"),
        (openai("Function calling is not enabled for models/gemma-3-27b-it"), "json_schema"),
        (mistral("tools"), "json_schema"),
    ],
)
async def test_a_clear_refusal_of_tools_in_a_turn_is_followed_by_the_next_mode(
    made, stub: Stub, refusal: Refusal, mode: str
):
    model = made()
    await call(model)
    assert model.mode == "tools"
    stub.refuse = refusing("tools", refusal)
    assert await call(model) == "now"
    assert model.mode == mode


async def test_a_schema_that_is_unavailable_in_a_turn_is_followed_by_text(made, stub: Stub):
    stub.refuse = refusing("tools", fastapi("tools"))
    model = made()
    await call(model)
    stub.refuse = lambda body: (
        openai("This response_format type is unavailable now")
        if {"tools", "response_format"} & body.keys()
        else None
    )
    assert await call(model) == "now"
    assert model.mode == "text"


@pytest.mark.parametrize(
    "refusal",
    [
        openai("Invalid schema for function 'now': In context=(), 'x' is broken."),
        openai("Invalid 'tools[0].function.parameters': something is wrong."),
        openai("The key is wrong.", 401),
        openai("Rate limit: tools are not supported now", 429),
        openai("max_tokens is too large: 50. This model supports at most 16 completion tokens"),
    ],
)
async def test_a_refusal_of_something_else_takes_no_tools_away(made, stub: Stub, refusal: Refusal):
    model = made()
    await call(model)
    stub.refuse = lambda body: refusal
    with pytest.raises((ModelRejected, ModelUnavailable)):
        await call(model)
    assert model.mode == "tools"
    assert model.profile.profile.output_limit == "max_tokens"


async def test_the_input_that_a_refusal_repeats_is_not_what_it_refuses(made, stub: Stub):
    entry = {
        "type": "missing",
        "loc": ["body", "user"],
        "msg": "Field required",
        "input": {"tools": "unsupported", "tool_choice": "unknown", "seed": "invalid"},
    }
    model = made(mode="tools")
    stub.refuse = lambda body: (422, {"detail": [entry]})
    with pytest.raises(ModelRejected):
        await call(model)
    assert len(stub.bodies) == 1


async def test_a_field_of_the_setting_is_never_changed(made, stub: Stub):
    stub.refuse = dashscope
    model = made(mode="tools", profile={"tool_choice": "required"})
    with pytest.raises(ModelRejected, match="thinking mode"):
        await call(model)
    assert len(stub.bodies) == 1


async def test_a_field_of_the_body_is_never_changed(made, stub: Stub):
    stub.refuse = gpt5
    model = made(mode="tools", body={"max_tokens": 7})
    with pytest.raises(ModelRejected, match="max_completion_tokens"):
        await call(model)
    assert [body["max_tokens"] for body in stub.bodies] == [7]


async def test_the_setting_says_what_is_asked_at_once(made, stub: Stub):
    stub.refuse = gpt56
    profile = {"output_limit": "max_completion_tokens", "reasoning_effort": "none", "mode": "tools"}
    await call(made(profile=profile))
    assert len(stub.bodies) == 1
    assert stub.last["max_completion_tokens"] == 50


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        ({"tool_choise": "auto"}, "there is no field tool_choise"),
        ({"tool_choice": "always"}, "tool_choice: Input should be 'named'"),
    ],
)
def test_a_typo_in_the_setting_is_named(profile: Body, said: str):
    with pytest.raises(SetupError, match=said):
        OpenAICompatible(Endpoint("http://127.0.0.1:9/v1"), ModelOptions(profile=profile))


async def test_every_change_is_one_warning_and_is_reported(
    made, stub: Stub, caplog: pytest.LogCaptureFixture
):
    stub.refuse = o4_mini
    model = made()
    with caplog.at_level(logging.WARNING, "memserver.llm"):
        await call(model)
        await call(model)
    assert len(caplog.messages) == 2
    assert "output_limit is max_completion_tokens, not max_tokens" in caplog.messages[0]
    assert "parallel_tool_calls is left out" in caplog.messages[1]
    report = model.profile
    assert [change.field for change in report.changes] == ["output_limit", "parallel_tool_calls"]
    assert "Use 'max_completion_tokens' instead" in str(report.changes[0])


async def test_a_summary_with_calls_is_requested_as_text_where_calls_need_tools(made, stub: Stub):
    stub.refuse = lambda body: (
        openai("Requests which have `tool_use` blocks must define tools.")
        if "tools" not in body and any("tool_calls" in each for each in body["messages"])
        else None
    )
    model = made()
    written = await model.write(PROMPT, max_tokens=50)
    assert written.text
    assert all("tool_calls" not in each for each in stub.last["messages"])
    assert model.mode == "tools"


@pytest.mark.parametrize(
    ("reported", "where", "field"),
    [
        (
            "The `reasoning_content` in the thinking mode must be passed back to the API.",
            "message",
            "reasoning_content",
        ),
        (
            "Function call is missing a thought_signature in functionCall parts.",
            "call",
            "extra_content",
        ),
    ],
)
async def test_calls_of_another_model_get_the_field_that_the_endpoint_misses(
    made, stub: Stub, reported: str, where: str, field: str
):
    def refuse(body: Body) -> Refusal:
        for message in body["messages"]:
            for one in message.get("tool_calls", ()):
                if field not in (message if where == "message" else one):
                    return openai(reported)
        return None

    stub.refuse = refuse
    model = made()
    assert await call(model) == "now"
    assert await call(model) == "now"
    assert model.mode == "tools"


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("kind", ["call", "text"])
@pytest.mark.parametrize(
    ("message", "reason", "said"),
    [
        (
            {"content": None, "refusal": "I can't help with that."},
            "stop",
            "I can't help with that.",
        ),
        ({"content": ""}, "content_filter", "content filter"),
        ({"content": "Once upon"}, "content_filter", "Once upon"),
    ],
)
async def test_a_refusal_by_the_model_or_a_filter_is_an_error_with_its_words(
    made, stub: Stub, streamed: bool, kind: str, message: Body, reason: str, said: str
):
    stub.reply = lambda body: {"choices": [{"message": message, "finish_reason": reason}]}
    model = made(mode="tools")
    sink = (lambda text: None) if streamed else None
    ask = partial(model.call_tool, PROMPT, TOOLS) if kind == "call" else partial(model.write, PLAIN)
    with pytest.raises(ModelRefused, match=said) as caught:
        await ask(max_tokens=50, on_text=sink)
    assert caught.value.hint


async def test_a_reply_that_is_no_call_carries_what_it_cost(made, stub: Stub):
    usage = {"prompt_tokens": 1000, "completion_tokens": 100}
    stub.reply = lambda body: {
        "choices": [{"message": {"content": "Hello!"}, "finish_reason": "length"}],
        "usage": usage,
    }
    model = made(mode="tools")
    with pytest.raises(ProtocolViolation) as caught:
        await call(model)
    assert caught.value.usage == TokenUsage(1000, 100)
    assert "MEMSERVER_LLM_MAX_OUTPUT_TOKENS" in caught.value.hint


@pytest.mark.parametrize(
    "refusal",
    [
        openai("Failed to call a function. Please adjust your prompt.", code="tool_use_failed"),
        (500, {"error": {"message": "error parsing tool call: raw='{\"me' invalid character"}}),
        openai("The model produced output that does not match the expected peg-native format", 500),
    ],
)
async def test_a_call_that_the_endpoint_could_not_read_is_the_models_fault(
    made, stub: Stub, refusal: Refusal
):
    model = made()
    await call(model)
    stub.refuse = lambda body: refusal
    with pytest.raises(ProtocolViolation):
        await call(model)
    assert model.mode == "tools"


def mistral_order(body: Body) -> Refusal:
    roles = ["", *(message["role"] for message in body["messages"])]
    for before, role in pairwise(roles):
        if (before, role) in {("tool", "user"), ("user", "user"), ("assistant", "assistant")}:
            raw = json.dumps(
                {"object": "error", "message": f"Unexpected role '{role}' after role '{before}'"}
            )
            wrapped = {"message": "Provider returned error", "code": 400, "metadata": {"raw": raw}}
            return 400, {"error": wrapped}
    return None


def gemma(body: Body) -> Refusal:
    """Gemma 2 on llama.cpp, by its template: strict roles, no system message, and no results of tools."""
    roles = [message["role"] for message in body["messages"]]
    if "system" in roles:
        return openai("Error: Jinja Exception: System role not supported", 500)
    if roles != [("user", "assistant")[place % 2] for place in range(len(roles))]:
        reported = "Error: Jinja Exception: Conversation roles must alternate user/assistant/user/assistant/..."
        return openai(reported, 500)
    return None


def anthropic(body: Body) -> Refusal:
    if body["messages"][-1]["role"] == "assistant":
        return openai(
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )
    for before, after in pairwise(body["messages"]):
        if before["role"] == after["role"] == "user":
            reported = 'messages: roles must alternate between "user" and "assistant", but found multiple "user" roles in a row'
            return openai(reported)
    return None


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("refuse", [mistral_order, gemma, anthropic])
async def test_roles_are_put_in_the_order_that_a_template_demands(
    made, stub: Stub, refuse, streamed: bool
):
    stub.refuse = refuse
    model = made()
    for _ in range(2):
        assert await call(model, streamed=streamed) == "now"
    assert (await model.write(PROMPT, max_tokens=50)).text
    assert refuse(stub.last) is None
    asked = len(stub.bodies)
    await call(model, streamed=streamed)
    assert len(stub.bodies) == asked + 1


async def test_reasoning_that_may_not_come_back_stays_away(made, stub: Stub):
    def refuse(body: Body) -> Refusal:
        if any("reasoning_content" in message for message in body["messages"]):
            return openai(
                "'messages.2' : for 'role:assistant' the following must be satisfied"
                "[('messages.2' : property 'reasoning_content' is unsupported)]"
            )
        return None

    stub.refuse = refuse
    stub.reply = lambda body: {
        "choices": [
            {**choice, "message": {**choice["message"], "reasoning_content": "Hm."}}
            for choice in answer(body)["choices"]
        ]
    }
    model = made()
    reply = await model.call_tool(PLAIN, TOOLS, max_tokens=50)
    assert reply.fields is not None
    history = [
        *PLAIN,
        PromptMessage("assistant", "", reply.call, reply.fields),
        PromptMessage("tool", "OK", reply.call),
    ]
    await model.call_tool(history, TOOLS, max_tokens=50)
    assert model.profile.profile.returned_fields == "left_out"
    assert model.fields_of is None


async def test_a_server_without_templates_for_tools_keeps_its_roles(made, stub: Stub):
    stub.refuse = refusing("tools", openai("tools param requires --jinja flag", 500))
    model = made()
    assert await call(model) == "now"
    assert (model.mode, model.profile.unusual()) == ("json_schema", {})


async def test_where_no_form_is_taken_nothing_is_given_up(made, stub: Stub):
    model = made()
    await call(model)
    stub.refuse = lambda body: openai("Error: Jinja Exception: conversation roles must alternate")
    with pytest.raises(ModelRejected):
        await call(model)
    assert len(stub.bodies) > 3
    assert (model.mode, model.profile.unusual(), model.profile.changes) == ("tools", {}, ())
    stub.refuse = lambda body: None
    assert await call(model) == "now"


async def test_what_a_probe_gave_up_for_a_way_that_is_not_taken_stays(made, stub: Stub):
    stub.refuse = refusing("tools", openai("Error: Jinja Exception: there is no tool here", 500))
    model = made()
    await call(model)
    assert (model.mode, model.profile.unusual()) == ("json_schema", {})


async def test_text_beside_a_call_is_left_out_where_it_is_refused(made, stub: Stub):
    stub.refuse = lambda body: (
        openai("Assistant message must have either content or tool_calls, but not both.")
        if any(each.get("content") and "tool_calls" in each for each in body["messages"])
        else None
    )
    model = made(mode="tools")
    assert await call(model) == "now"
    step = next(each for each in stub.last["messages"] if "tool_calls" in each)
    assert (len(stub.bodies), step["content"]) == (2, "")


async def test_tools_that_a_template_can_not_render_have_their_own_schemas(made, stub: Stub):
    stub.refuse = lambda body: (
        openai("RecursionError: maximum recursion depth exceeded", 500)
        if '"null"' in json.dumps(body.get("tools", []))
        else None
    )
    model = made(mode="tools")
    assert await call(model) == "now"
    assert [tool["function"]["name"] for tool in stub.last["tools"]] == [
        each.name for each in TOOLS
    ]


@pytest.mark.parametrize("profile", [{}, {"roles": "alternating"}, {"system_role": "user"}])
@pytest.mark.parametrize("mode", ["tools", "json_schema"])
async def test_pictures_are_sent_as_parts_of_the_users_message(
    made, stub: Stub, mode: str, profile: Any
):
    model = made(mode=mode, profile=profile)
    await model.call_tool(SHOWN, TOOLS, max_tokens=50)
    [parts] = [each["content"] for each in stub.last["messages"] if type(each["content"]) is list]
    assert [part["type"] for part in parts][-2:] == ["text", "image_url"]
    assert parts[-1]["image_url"]["url"] == "data:image/png;base64,cG5n"
    assert model.takes_pictures


@pytest.mark.parametrize(
    "refusal",
    [
        openai("Invalid content type. image_url is only supported by certain models."),
        openai("Failed to deserialize: messages[1]: unknown variant `image_url`, expected `text`"),
        openai("image input is not supported - hint: you may need to provide the mmproj", 500),
        openai("m is not a multimodal model"),
    ],
)
async def test_a_model_without_pictures_is_sent_words_and_known_for_it(
    made, stub: Stub, refusal: Refusal
):
    stub.refuse = lambda body: refusal if "image_url" in json.dumps(body) else None
    model = made(mode="tools")
    await model.call_tool(SHOWN, TOOLS, max_tokens=50)
    assert "can't see pictures" in json.dumps(stub.last)
    assert not model.takes_pictures
    await call(model)
    assert model.profile.unusual() == {"pictures": False}
