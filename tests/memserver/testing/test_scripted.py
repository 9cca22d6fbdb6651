import asyncio

import pytest

from memserver.errors import ContextOverflow, ModelUnavailable, ProtocolViolation
from memserver.llm.reply_parser import RawReply
from memserver.messages import PromptMessage, ToolSpec
from memserver.testing.scripted import Broken, Call, Held, ScriptedModel, say

SEND = ToolSpec(
    "send_message",
    "",
    {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
)
PROMPT = [PromptMessage("system", "Be kind."), PromptMessage("user", "Hello there")]


async def ask(model: ScriptedModel, **options):
    return await model.call_tool(PROMPT, [SEND], max_tokens=100, **options)


async def test_the_steps_of_a_script_are_answered_in_order_and_the_prompts_recorded():
    model = ScriptedModel([say("one"), say("two")])
    answers = [(await ask(model)).call.arguments["message"] for _ in range(2)]
    assert answers == ["one", "two"]
    assert model.last_prompt == tuple(PROMPT)
    assert [seen.tools for seen in model.seen] == [(SEND,), (SEND,)]


async def test_a_rule_makes_a_step_from_the_prompt():
    model = ScriptedModel(lambda prompt, tools: say(prompt[-1].text.upper()))
    assert (await ask(model)).call.arguments == {"message": "HELLO THERE"}


async def test_an_error_in_a_script_is_raised():
    with pytest.raises(ModelUnavailable):
        await ask(ScriptedModel([ModelUnavailable("gone")]))


@pytest.mark.parametrize("step", ["Hello!", RawReply(), Call("fly"), Call("send_message")])
async def test_an_invalid_reply_is_a_violation_as_from_an_endpoint(step):
    with pytest.raises(ProtocolViolation):
        await ask(ScriptedModel([step]))


async def test_a_held_step_waits_for_its_event():
    held = Held(say("late"), asyncio.Event())
    model = ScriptedModel([held])
    asked = asyncio.create_task(ask(model))
    await held.reached.wait()
    assert not asked.done()
    held.release.set()
    assert (await asked).call.arguments == {"message": "late"}


async def test_a_message_is_streamed_in_several_fragments():
    heard: list[str] = []
    await ask(ScriptedModel([say("a longer message")]), on_text=heard.append)
    assert len(heard) > 1
    assert "".join(heard) == "a longer message"


async def test_a_broken_step_streams_and_then_fails():
    heard: list[str] = []
    step = Broken(say("half"), ModelUnavailable("gone"))
    with pytest.raises(ModelUnavailable):
        await ask(ScriptedModel([step]), on_text=heard.append)
    assert "".join(heard) == "half"


async def test_a_prompt_longer_than_the_window_overflows():
    with pytest.raises(ContextOverflow):
        await ask(ScriptedModel([say("hi")], context_window=105))


async def test_plain_text_is_written_by_the_summariser():
    model = ScriptedModel(summary=lambda prompt: f"{len(prompt)} messages")
    assert (await model.write(PROMPT, max_tokens=10)).text == "2 messages"
    assert model.writes == [tuple(PROMPT)]


async def test_an_exhausted_script_fails_the_test_that_asked_once_more():
    with pytest.raises(AssertionError, match="once more"):
        await ask(ScriptedModel([]))
