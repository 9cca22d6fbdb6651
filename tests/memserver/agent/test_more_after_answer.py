"""An answer may ask for another step: to save something, or to say more."""

import json
from typing import Any

import pytest

from memserver.testing.scripted import Call, ScriptedModel, say
from tests.support.server import OneDatabase, serving

NOTE = Call("working_context_append", {"section": "human", "content": "Name: Ada"})
MORE = {"request_heartbeat": True}


def names(answer: dict[str, Any]) -> list[str]:
    return [message["tool_call"]["name"] for message in answer["messages"]]


async def test_a_call_may_follow_an_answer_and_the_turn_ends_as_answered(
    database: OneDatabase,
) -> None:
    model = ScriptedModel([say("Hello Ada!", **MORE), NOTE])
    async with serving(database, model) as server:
        agent = await server.create_agent()
        answer = await server.say(agent, "I am Ada.")
        section = await server.get(f"{agent}/working-context/human")
    assert names(answer) == ["send_message", "working_context_append"]
    assert (answer["text"], answer["stop_reason"]) == ("Hello Ada!", "message_sent")
    assert "Name: Ada" in section["text"]


async def test_every_message_of_a_turn_is_delivered_with_an_empty_line_between(
    database: OneDatabase,
) -> None:
    model = ScriptedModel(
        [say("One.", **MORE), say("Two."), say("One.", **MORE), say("Two."), say("Three.")]
    )
    async with serving(database, model) as server:
        agent = await server.create_agent()
        answer = await server.say(agent, "Count.")
        events = await server.events(agent, "Count again.")
        asked = {"model": agent, "messages": [{"role": "user", "content": "And?"}]}
        more = await server.http.post("/v1/chat/completions", json=asked)
        history = await server.get(f"{agent}/messages", order="asc")
    assert answer["text"] == "One.\n\nTwo."
    assert [data["text"] for kind, data in events if kind == "message"] == ["One.", "Two."]
    assert [data["step"] for kind, data in events if kind == "message_delta"][-1] == 2
    assert more.json()["choices"][0]["message"]["content"] == "Three."
    said = [each["text"] for each in history["items"] if each["role"] == "assistant"]
    assert said == ["One.", "Two.", "One.", "Two.", "Three."]


async def test_openai_clients_see_them_joined_and_what_they_send_back_is_known(
    database: OneDatabase,
) -> None:
    model = ScriptedModel(
        [say("One.", **MORE), say("Two."), say("Three.", **MORE), say("Four."), say("Five.")]
    )
    async with serving(database, model) as server:
        agent = await server.create_agent()
        talk = [{"role": "user", "content": "Count."}]
        asked = {"model": agent, "messages": talk}
        first = (await server.http.post("/v1/chat/completions", json=asked)).json()
        text = first["choices"][0]["message"]["content"]
        talk += [{"role": "assistant", "content": text}, {"role": "user", "content": "Go on."}]
        streamed = await server.http.post("/v1/chat/completions", json={**asked, "stream": True})
        data = [
            json.loads(line.removeprefix("data: "))
            for line in streamed.text.splitlines()
            if line.startswith("data: {")
        ]
        heard = "".join(
            each["choices"][0]["delta"].get("content", "") for each in data if each["choices"]
        )
        talk += [{"role": "assistant", "content": heard}, {"role": "user", "content": "And?"}]
        await server.http.post("/v1/chat/completions", json=asked)
        kinds = server.rows("SELECT DISTINCT kind FROM turns")
    assert text == "One.\n\nTwo."
    assert heard == "Three.\n\nFour."
    assert kinds == [("message",)]


async def test_an_answer_in_the_last_step_ends_the_turn_whatever_it_requests(
    database: OneDatabase,
) -> None:
    model = ScriptedModel([say("Hello!", **MORE)])
    async with serving(database, model) as server:
        agent = await server.create_agent(options={"max_steps": 1})
        answer = await server.say(agent, "Hello.")
    assert (answer["stop_reason"], answer["steps"]) == ("message_sent", 1)


@pytest.mark.parametrize(("small", "offered"), [(False, True), (True, False)])
async def test_models_too_small_to_think_are_not_asked_to(
    database: OneDatabase, small: bool, offered: bool
) -> None:
    model = ScriptedModel([say("Hello!")])
    async with serving(database, model, llm_thought_last=small) as server:
        await server.say(await server.create_agent(), "Hello.")
    parameters = model.seen[0].tools[0].parameters["properties"]
    assert ("request_heartbeat" in parameters) is offered
