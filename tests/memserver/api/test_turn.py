"""A message, the agent's tools, its answer: over HTTP, on a real database, with a scripted model."""

from memserver.testing.scripted import Call, ScriptedModel, say
from tests.support.server import OneDatabase, serving


async def test_a_message_is_answered_by_send_message(database: OneDatabase) -> None:
    model = ScriptedModel([say("Hello Ada!", thought="I greet her.")])
    async with serving(database, model) as server:
        agent = await server.create_agent(name="sam")
        answer = await server.say(agent, "Hi, I am Ada.")
    assert answer["text"] == "Hello Ada!"
    assert answer["stop_reason"] == "message_sent"
    assert answer["steps"] == 1
    [message] = answer["messages"]
    assert message["thought"] == "I greet her."
    assert message["tool_call"]["name"] == "send_message"
    assert message["tool_call"]["state"] == "done"


async def test_a_fact_that_is_appended_is_in_the_next_prompt(database: OneDatabase) -> None:
    script = [
        Call(
            "working_context_append",
            {
                "inner_thought": "Keep it.",
                "section": "human",
                "content": "Name: Ada",
                "request_heartbeat": True,
            },
        ),
        say("Hello Ada!"),
        say("You are Ada."),
    ]
    model = ScriptedModel(script)
    async with serving(database, model) as server:
        agent = await server.create_agent()
        answer = await server.say(agent, "Hi, I am Ada.")
        assert answer["steps"] == 2
        await server.say(agent, "Who am I?")
        context = await server.get(f"{agent}/working-context")
    assert "Name: Ada" in model.last_prompt[0].text
    assert [section["text"] for section in context["sections"]][1] == "Name: Ada"
