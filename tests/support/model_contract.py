"""The contract of `ChatModel`. A test module subclasses it and gives a `make` fixture."""

from collections.abc import Sequence
from typing import Protocol

import pytest

from memserver.errors import (
    ContextOverflow,
    ModelError,
    ModelRejected,
    ModelUnavailable,
    ProtocolViolation,
)
from memserver.llm.base import ChatModel, Reply
from memserver.llm.reply_parser import RawCall, RawReply
from memserver.messages import FunctionCall, PromptMessage, ToolSpec
from memserver.testing.scripted import Broken, Call, Rule, Step, Writer, say

SEND = ToolSpec(
    "send_message",
    "Say something to the user.",
    {
        "type": "object",
        "properties": {
            "inner_thought": {"type": "string"},
            "message": {"type": "string", "maxLength": 100},
        },
        "required": ["message"],
    },
)
SEARCH = ToolSpec(
    "search",
    "Search.",
    {
        "type": "object",
        "properties": {"query": {"type": "string"}, "page": {"type": "integer"}},
        "required": ["query"],
    },
)
NOW = ToolSpec("now", "", {"type": "object", "properties": {}})
TOOLS = [SEND, SEARCH, NOW]
CALL = FunctionCall("call_1", "search", {"query": "日本 😀", "page": 2})
PROMPT = [
    PromptMessage("system", "You remember."),
    PromptMessage("user", "[2026-02-07 14:03] Who am I?"),
    PromptMessage("assistant", "I should look.", CALL),
    PromptMessage("tool", "No results found.", CALL),
    PromptMessage("system", "Memory is nearly full."),
    PromptMessage("user", 'Lone \ud83d, NUL \x00, quote " and 😀'),
]

PLAIN = [PromptMessage("system", "Be brief."), PromptMessage("user", "Who am I?")]


class Make(Protocol):
    """Makes a model that acts as a rule says and writes as a writer does."""

    def __call__(self, rule: Rule, writer: Writer = ...) -> ChatModel: ...


def they_talked(_prompt: Sequence[PromptMessage]) -> Step:
    return "They talked."


def in_order(*steps: Step) -> Rule:
    left = list(steps)
    return lambda prompt, tools: left.pop(0)


async def ask(
    model: ChatModel,
    *,
    tools: Sequence[ToolSpec] = TOOLS,
    heard: list[str] | None = None,
) -> Reply:
    on_text = None if heard is None else heard.append
    return await model.call_tool(PROMPT, tools, max_tokens=50, on_text=on_text)


class ModelContract:
    """What every chat model keeps, streamed or not."""

    @pytest.fixture(params=[False, True], ids=["whole", "streamed"])
    def heard(self, request: pytest.FixtureRequest) -> list[str] | None:
        return [] if request.param else None

    async def test_it_gives_exactly_the_call_that_the_model_made(self, make: Make, heard):
        model = make(in_order(Call("search", {"query": "who 日本 😀", "page": 3})))
        reply = await ask(model, heard=heard)
        assert (reply.call.name, reply.call.arguments) == (
            "search",
            {"query": "who 日本 😀", "page": 3},
        )
        assert reply.call.id
        assert not heard

    async def test_each_call_has_an_id_of_its_own(self, make: Make):
        model = make(in_order(Call("now"), Call("now")))
        assert (await ask(model)).call.id != (await ask(model)).call.id

    async def test_it_has_a_name_and_says_how_many_tokens_were_used(self, make: Make, heard):
        model = make(in_order(say("hi")))
        usage = (await ask(model, heard=heard)).usage
        assert model.name
        assert usage.prompt_tokens > 0
        assert usage.completion_tokens > 0

    async def test_with_one_tool_it_is_that_one(self, make: Make, heard):
        model = make(in_order(Call("now")))
        assert (await ask(model, tools=[NOW], heard=heard)).call.name == "now"

    async def test_the_rule_sees_the_prompt_and_the_tools(self, make: Make):
        seen: list[tuple[list[str], list[str]]] = []

        def rule(prompt: Sequence[PromptMessage], tools: Sequence[ToolSpec]) -> Step:
            seen.append(([message.text for message in prompt], [tool.name for tool in tools]))
            return say("ok")

        await ask(make(rule))
        ((texts, names),) = seen
        assert names == ["send_message", "search", "now"]
        assert len(texts) == len(PROMPT)
        assert texts[1] == PROMPT[1].text
        assert texts[3] == "No results found."
        assert texts[4].endswith("Memory is nearly full.")
        assert "😀" in texts[5]

    async def test_the_text_of_a_message_streams_in_several_fragments(self, make: Make):
        heard: list[str] = []
        text = 'Hello "James" \\ 日本 😀\nbye'
        reply = await ask(make(in_order(say(text, thought="message"))), heard=heard)
        assert reply.call.arguments["message"] == text
        assert "".join(heard) == text
        assert len(heard) > 1

    @pytest.mark.parametrize(
        "step",
        [
            "Hello there!",
            RawReply(),
            RawReply(reasoning="hm"),
            RawReply(
                content='{"tool": "send_message", "arguments": {"mess', finish_reason="length"
            ),
            Call("fly"),
            Call("send_message"),
            Call("send_message", {"message": "x" * 20_001}),
            Call("search", {"query": "hi", "name": "human"}),
            Call("search", {"query": "x", "page": "two"}),
            RawReply(calls=(RawCall("send_message", '{"message": "cut'),)),
            RawReply(calls=(RawCall("search", "[1]"),)),
        ],
        ids=repr,
    )
    async def test_a_reply_that_is_no_valid_call_is_a_violation(self, make: Make, step, heard):
        with pytest.raises(ProtocolViolation) as caught:
            await ask(make(in_order(step)), heard=heard)
        assert caught.value.complaint.endswith((".", ")"))
        assert caught.value.complaint not in caught.value.message
        assert caught.value.usage.prompt_tokens > 0

    @pytest.mark.parametrize(
        ("step", "name", "arguments"),
        [
            (Call("search", {"query": "x", "page": "2"}), "search", {"query": "x", "page": 2}),
            (Call("search", {"query": "x", "page": None}), "search", {"query": "x"}),
            (RawReply(calls=(RawCall("now", None),)), "now", {}),
            (
                Call("send_message", {"message": "x" * 101}),
                "send_message",
                {"message": "x" * 101},
            ),
            (
                Call("functions.search", {"query": "hi", "request_heartbeat": True}),
                "search",
                {"query": "hi"},
            ),
            (RawReply(calls=(RawCall("now", ""), RawCall("search", "{}"))), "now", {}),
            (RawReply('{"tool": "now", "arguments": {}}{"tool": "fly"}'), "now", {}),
            (RawReply('<think>{"a": </think>{"tool": "now"}'), "now", {}),
        ],
        ids=repr,
    )
    async def test_a_reply_with_forgivable_faults_is_a_call(
        self, make: Make, step, name, arguments, heard
    ):
        call = (await ask(make(in_order(step)), heard=heard)).call
        assert (call.name, call.arguments) == (name, arguments)

    async def test_a_violation_leaves_the_model_usable(self, make: Make):
        model = make(in_order("Hello!", say("hi")))
        with pytest.raises(ProtocolViolation):
            await ask(model)
        assert (await ask(model)).call.arguments == {"message": "hi"}

    @pytest.mark.parametrize(
        "error",
        [ModelUnavailable("loading"), ModelRejected("no"), ContextOverflow("too long")],
        ids=lambda error: error.code,
    )
    async def test_a_failure_of_the_endpoint_is_the_error_of_its_kind(
        self, make: Make, error: ModelError, heard
    ):
        with pytest.raises(ModelError) as caught:
            await ask(make(in_order(error)), heard=heard)
        assert type(caught.value) is type(error)

    @pytest.mark.parametrize(
        "error",
        [ModelUnavailable("gone"), ContextOverflow("too long")],
        ids=lambda error: error.code,
    )
    async def test_a_stream_that_breaks_is_the_error_of_its_kind(
        self, make: Make, error: ModelError
    ):
        heard: list[str] = []
        with pytest.raises(ModelError) as caught:
            await ask(make(in_order(Broken(say("half a message"), error))), heard=heard)
        assert type(caught.value) is type(error)
        assert "".join(heard) == "half a message"

    async def test_it_writes_plain_text(self, make: Make):
        written = await make(in_order()).write(PROMPT, max_tokens=50)
        assert written.text == "They talked."
        assert written.usage.completion_tokens > 0

    @pytest.mark.parametrize(
        ("reply", "text"),
        [
            ("  Hello, Ada!\n What is 日本 😀?\n", "Hello, Ada!\n What is 日本 😀?"),
            ("<think>She asks.</think>\n\nAda.", "Ada."),
            (RawReply("It ends in the mid", finish_reason="length"), "It ends in the mid"),
            (RawReply("Ada.", reasoning="She asks."), "Ada."),
        ],
        ids=repr,
    )
    async def test_plain_text_comes_and_streams_without_what_stands_around_it(
        self, make: Make, reply, text, heard
    ):
        on_text = None if heard is None else heard.append
        model = make(in_order(), lambda _: reply)
        written = await model.write(PLAIN, max_tokens=50, on_text=on_text)
        assert written.text == text
        assert heard is None or "".join(heard) == text
        assert model.name
        assert written.usage.prompt_tokens > 0

    @pytest.mark.parametrize(
        "reply", ["", " \n", RawReply(reasoning="hm"), "<think>hm", "<think>hm</think> "], ids=repr
    )
    async def test_no_text_is_a_violation(self, make: Make, reply, heard):
        on_text = None if heard is None else heard.append
        with pytest.raises(ProtocolViolation):
            await make(in_order(), lambda _: reply).write(PLAIN, max_tokens=50, on_text=on_text)
        assert not heard

    async def test_a_text_that_breaks_off_or_never_comes_is_the_error_of_its_kind(self, make: Make):
        heard: list[str] = []
        broken = make(in_order(), lambda _: Broken("half a text", ModelUnavailable("gone")))
        with pytest.raises(ModelUnavailable):
            await broken.write(PLAIN, max_tokens=50, on_text=heard.append)
        assert "".join(heard) == "half a text"
        with pytest.raises(ModelRejected):
            await make(in_order(), lambda _: ModelRejected("no")).write(PLAIN, max_tokens=50)

    async def test_it_counts_tokens_in_order_and_none_for_nothing(self, make: Make):
        model = make(in_order())
        none, few, many = await model.count_tokens(["", "one", "one two three " * 20])
        assert none == 0
        assert 0 < few < many
        assert await model.count_tokens([]) == []
        assert model.message_overhead > 0

    async def test_it_knows_its_window(self, make: Make):
        assert await make(in_order()).context_window() == 4096

    async def test_it_can_be_closed_twice(self, make: Make):
        model = make(in_order())
        await model.aclose()
        await model.aclose()
