"""What is never changed of a request that was refused, how a change is reported, and which refusals are errors."""

import logging
from functools import partial

import pytest

from memserver.errors import (
    ModelRefused,
    ModelRejected,
    ProtocolViolation,
    SetupError,
)
from memserver.llm.openai_compatible import ModelOptions, OpenAICompatible
from memserver.messages import TokenUsage
from memserver.openai_http.endpoint import Endpoint
from tests.memserver.llm.refusing_endpoint import (
    PLAIN,
    Body,
    Refusal,
    Stub,
    call,
    dashscope,
    gpt5,
    gpt56,
    o4_mini,
    openai,
)
from tests.support.model_contract import PROMPT, TOOLS


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
