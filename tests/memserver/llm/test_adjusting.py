"""A refused request is sent again in the form that the endpoint takes, over a real socket, in the providers' own words."""

import pytest

from memserver.errors import (
    ModelRejected,
    ModelUnavailable,
)
from tests.memserver.llm.refusing_endpoint import (
    Body,
    Refusal,
    Stub,
    call,
    dashscope,
    fastapi,
    gpt5,
    gpt56,
    mistral,
    o4_mini,
    openai,
    refusing,
    unknown,
)
from tests.support.model_contract import NOW, TOOLS


def lm_studio(body: Body) -> Refusal:
    if isinstance(body.get("tool_choice"), dict):
        reported = (
            "Invalid tool_choice type: 'object'. Supported string values: none, auto, required"
        )
        return 400, {"error": reported}
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
