"""Tools that OpenAI's own Python client sends with a request, and runs itself."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import openai
import pytest

from memserver.agent import call_answers
from memserver.client import Client
from memserver.errors import ModelUnavailable
from memserver.testing.scripted import Call, ScriptedModel, say
from tests.support.client import served
from tests.support.scripted_agent import HeldHere, Scripted
from tests.support.server import OneDatabase
from tests.support.servers import wait_for

PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER: Any = {
    "type": "function",
    "function": {"name": "get_weather", "description": "The weather.", "parameters": PARAMETERS},
}
TIME: Any = {"type": "function", "function": {"name": "get_time"}}
FLAT: Any = {"type": "function", **WEATHER["function"]}
ASK: Any = [{"role": "user", "content": "What is the weather in Oslo?"}]
OSLO = Call("get_weather", {"inner_thought": "I look.", "city": "Oslo"})
NOTE = Call(
    "working_context_append", {"section": "human", "content": "Oslo.", "request_heartbeat": True}
)


def ask(scripted: Scripted, messages: Any = ASK, **more: Any) -> Any:
    return scripted.sdk.chat.completions.create(
        **{"model": scripted.name, "messages": messages, "tools": [WEATHER], **more}
    )


def answered(answer: Any, result: str = "Sunny.") -> list[Any]:
    """What the client sends next: the agent's call, and its result."""
    message = answer.choices[0].message
    call = message.tool_calls[0]
    return [
        message.model_dump(),
        {"role": "tool", "tool_call_id": call.id, "content": result},
    ]


def test_a_clients_tool_is_called_and_its_result_continues_the_turn(scripted: Scripted):
    scripted.begin(NOTE, OSLO, say("It is sunny in Oslo."), say("Bye."))
    first = ask(scripted)
    [choice] = first.choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    [call] = choice.message.tool_calls
    assert (call.type, call.function.name) == ("function", "get_weather")
    assert json.loads(call.function.arguments) == {"city": "Oslo"}
    chat = [*ASK, *answered(first)]
    second = ask(scripted, chat)
    assert second.choices[0].message.content == "It is sunny in Oslo."
    assert (second.choices[0].finish_reason, second.id != first.id) == ("stop", True)
    assert second.model_extra["memserver"]["turn"] == first.model_extra["memserver"]["turn"]
    steps = [seen.tools for seen in scripted.model.seen]
    assert all({"get_weather", "recall_memory_search"} <= {t.name for t in each} for each in steps)
    chat += [{"role": "assistant", "content": "It is sunny in Oslo."}]
    chat += [{"role": "user", "content": "Thanks, bye."}]
    ask(scripted, chat, tools=openai.NOT_GIVEN)
    assert "get_weather" not in {each.name for each in scripted.model.seen[-1].tools}
    calls = [
        (each.tool_call.name, each.tool_call.result)
        for each in scripted.history()
        if each.tool_call
    ]
    assert ("get_weather", "Sunny.") in calls
    [before, after] = [each.usage.completion_tokens for each in (first, second)]
    turn = scripted.client.turns.get(scripted.agent_id, 1)
    assert before + after == turn.usage.completion_tokens


def test_calls_and_answers_are_streamed_in_openais_shape(scripted: Scripted):
    scripted.begin(say("I look.", request_heartbeat=True), OSLO, say("It is sunny."))
    with scripted.sdk.chat.completions.stream(
        model=scripted.name, messages=ASK, tools=[WEATHER]
    ) as stream:
        first = stream.get_final_completion()
    assert first.choices[0].message.content == "I look."
    assert first.choices[0].finish_reason == "tool_calls"
    assert first.choices[0].message.tool_calls
    assert json.loads(first.choices[0].message.tool_calls[0].function.arguments) == {"city": "Oslo"}
    with scripted.sdk.chat.completions.stream(
        model=scripted.name, messages=[*ASK, *answered(first)], tools=[WEATHER]
    ) as stream:
        assert stream.get_final_completion().choices[0].message.content == "It is sunny."


@pytest.mark.parametrize("by", ["id", "input"])
def test_a_response_calls_a_function_and_takes_its_output(scripted: Scripted, by: str):
    scripted.begin(OSLO, say("It is sunny."))
    said: Any = ASK[0]["content"]
    first = scripted.sdk.responses.create(model=scripted.name, input=said, tools=[FLAT])
    [call] = first.output
    assert call.type == "function_call"
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Oslo"})
    output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "Sunny."}
    whole: Any = [{"role": "user", "content": said}, call.to_dict(), output]
    more: Any = {"previous_response_id": first.id} if by == "id" else {}
    second = scripted.sdk.responses.create(
        model=scripted.name, input=[output] if by == "id" else whole, tools=[FLAT], **more
    )
    assert second.output_text == "It is sunny."
    assert scripted.sdk.responses.retrieve(second.id).output_text == "It is sunny."
    assert scripted.sdk.responses.retrieve(first.id).output == first.output


def test_a_streamed_response_has_the_events_of_a_function_call(scripted: Scripted):
    scripted.begin(say("I look.", request_heartbeat=True), OSLO, say("It is sunny."))
    with scripted.sdk.responses.stream(model=scripted.name, input="Oslo?", tools=[FLAT]) as stream:
        kinds = [event.type for event in stream]
        first = stream.get_final_response()
    assert "response.function_call_arguments.done" in kinds
    message, call = first.output
    assert (message.type, call.type, first.status) == ("message", "function_call", "completed")
    output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "Sunny."}
    with scripted.sdk.responses.stream(
        input=[output], previous_response_id=first.id, tools=[FLAT], model=scripted.name
    ) as stream:
        assert stream.get_final_response().output_text == "It is sunny."


def test_a_request_that_is_repeated_gets_the_same_answer(scripted: Scripted):
    scripted.begin(OSLO, say("It is sunny."))
    repeated = {"x-stainless-retry-count": "1"}
    first = ask(scripted)
    assert ask(scripted, extra_headers=repeated).choices == first.choices
    chat = [*ASK, *answered(first)]
    second = ask(scripted, chat)
    assert ask(scripted, chat).choices == second.choices
    assert ask(scripted, extra_headers=repeated).choices == first.choices
    with pytest.raises(openai.ConflictError) as refused:
        ask(scripted, [*ASK, *answered(first, "Rain.")])
    assert refused.value.response.headers["x-should-retry"] == "false"
    assert len(scripted.history()) == 3


def test_a_request_that_is_repeated_by_its_key_does_not_end_its_own_wait(scripted: Scripted):
    scripted.begin(OSLO, say("It is sunny."))
    key = {"Idempotency-Key": "one"}
    first = ask(scripted, extra_headers=key)
    assert ask(scripted, extra_headers=key).choices == first.choices
    second = ask(scripted, [*ASK, *answered(first)])
    assert second.choices[0].message.content == "It is sunny."
    with pytest.raises(openai.ConflictError):
        ask(scripted, extra_headers=key, tools=[TIME])


@pytest.mark.parametrize("is_patient", [True, False])
def test_a_message_that_came_before_the_call_waits_for_its_result_a_while(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch, is_patient: bool
):
    if not is_patient:
        monkeypatch.setattr(call_answers, "PATIENCE", timedelta(0))
    held = HeldHere(OSLO)
    scripted.begin(held, *[say("Sunny.")] * is_patient, say("Hello."))
    with ThreadPoolExecutor(2) as threads:
        asked = threads.submit(ask, scripted)
        assert held.reached.wait(60)
        other = threads.submit(scripted.client.messages.send, scripted.agent_id, "Hi")
        assert wait_for(lambda: scripted.has_turn(2), within=20)
        held.let_go()
        if is_patient:
            answer = ask(scripted, [*ASK, *answered(asked.result())])
            assert answer.choices[0].message.content == "Sunny."
        assert other.result().text == "Hello."


def test_a_new_message_instead_of_a_result_ends_the_wait(scripted: Scripted):
    scripted.begin(OSLO, say("Never mind, then."))
    first = ask(scripted)
    chat = [*ASK, answered(first)[0], {"role": "user", "content": "Never mind."}]
    assert ask(scripted, chat).choices[0].message.content == "Never mind, then."
    [_, call, *_] = scripted.history()
    assert (call.tool_call.state, call.tool_call.name) == ("failed", "get_weather")
    turn = scripted.client.turns.get(scripted.agent_id, 1)
    assert (turn.state, turn.stop_reason) == ("done", "superseded")
    scripted.steps.append(say("So it rains."))
    late = ask(scripted, [*ASK, *answered(first, "Rain.")])
    assert late.choices[0].message.content == "So it rains."
    assert any("Rain." in each.text for each in scripted.history())


def test_a_message_from_elsewhere_ends_the_wait_too(scripted: Scripted):
    scripted.begin(OSLO, say("Hello."))
    ask(scripted)
    assert scripted.client.messages.send(scripted.agent_id, "Hi").text == "Hello."


def test_a_result_that_comes_again_after_a_failure_is_answered(scripted: Scripted):
    scripted.begin(OSLO, *[ModelUnavailable("down")], say("It is sunny."))
    chat = [*ASK, *answered(ask(scripted))]
    with pytest.raises(openai.InternalServerError) as failed:
        ask(scripted, chat)
    assert failed.value.response.headers["x-should-retry"] == "false"
    assert ask(scripted, chat).choices[0].message.content == "It is sunny."


def test_a_call_that_no_client_answers_ends_its_turn_in_time(database: OneDatabase):
    model = ScriptedModel([OSLO, say("Hello.")])
    with (
        served(database, model, waiting_call_seconds=0.1) as server,
        Client(server.url) as client,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as sdk,
    ):
        agent = client.agents.create("sam")
        sdk.chat.completions.create(model="sam", messages=ASK, tools=[WEATHER])
        assert wait_for(lambda: client.turns.get(agent.id, 1).state == "done", within=30)
        assert client.turns.get(agent.id, 1).stop_reason == "expired"
        assert client.messages.send(agent.id, "Hi").text == "Hello."


def test_another_server_continues_the_turn(database: OneDatabase):
    first_model, second_model = ScriptedModel([OSLO]), ScriptedModel([say("It is sunny.")])
    with served(database, first_model) as server, Client(server.url) as client:
        client.agents.create("sam")
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as sdk:
            first = sdk.chat.completions.create(model="sam", messages=ASK, tools=[WEATHER])
    with (
        served(database, second_model) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as sdk,
    ):
        chat: Any = [*ASK, *answered(first)]
        second = sdk.chat.completions.create(model="sam", messages=chat)
    assert second.choices[0].message.content == "It is sunny."


def test_a_result_and_a_new_message_at_once_are_both_taken(scripted: Scripted):
    scripted.begin(OSLO, say("Fine."))
    first = ask(scripted)
    chat = [*ASK, *answered(first), {"role": "user", "content": "And say fine."}]
    assert ask(scripted, chat).choices[0].message.content == "Fine."
    [_, call, *_] = scripted.history()
    assert (call.tool_call.state, call.tool_call.result) == ("done", "Sunny.")


def test_a_tool_that_has_to_be_called_is_called_before_an_answer(scripted: Scripted):
    scripted.begin(say("It is sunny."), OSLO, say("Sunny."))
    chosen: Any = {"type": "function", "function": {"name": "get_weather"}}
    first = ask(scripted, tools=[WEATHER, TIME], tool_choice=chosen)
    assert first.choices[0].finish_reason == "tool_calls"
    offered = {each.name for each in scripted.model.seen[0].tools}
    assert "recall_memory_search" in offered
    assert not offered & {"send_message", "get_time"}
    ask(scripted, [*ASK, *answered(first)])


def test_a_turn_may_call_clients_tools_more_often_than_it_has_steps(scripted: Scripted):
    scripted.begin(*[OSLO] * 4, say("Done."), max_steps=3)
    chat, answer = [*ASK], ask(scripted)
    while answer.choices[0].finish_reason == "tool_calls":
        chat += answered(answer)
        answer = ask(scripted, chat)
    assert answer.choices[0].message.content == "Done."


BAD: Any = {"type": "function", "function": {"name": "f", "parameters": {"type": "string"}}}
DEEP: Any = {"type": "object", "properties": {}}
for _ in range(40):
    DEEP = {"type": "object", "properties": {"a": DEEP}}


def named(name: str, **more: Any) -> Any:
    return {"type": "function", "function": {"name": name, **more}}


@pytest.mark.parametrize(
    ("more", "parameter"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [BAD]}, "tools[0]"),
        ({"tools": [named("send_message")]}, "tools[0]"),
        ({"tools": [named("f"), named("f")]}, "tools[1]"),
        ({"tools": [named("a b")]}, "tools[0]"),
        ({"tools": [named("f", parameters=DEEP)]}, "tools[0]"),
        ({"tools": [named(f"f{n}") for n in range(129)]}, "tools"),
        ({"tools": [named("f", description="x" * 5000)]}, "tools[0]"),
        ({"tool_choice": named("g")}, "tool_choice"),
        ({"tools": [], "tool_choice": "required"}, "tool_choice"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"messages": [*ASK, {"role": "assistant", "content": "It"}]}, "messages"),
        ({"messages": [*ASK, {"role": "tool", "content": "1"}]}, "messages"),
        ({"messages": [{"role": "system", "content": "Be kind."}]}, "messages"),
        ({"messages": [{"role": "tool", "tool_call_id": "x", "content": "1"}]}, "messages"),
    ],
)
def test_what_can_not_be_is_refused_and_nothing_is_stored(
    scripted: Scripted, more: Any, parameter: str
):
    scripted.begin()
    with pytest.raises(openai.BadRequestError) as refused:
        ask(scripted, **more)
    assert refused.value.param == parameter
    assert scripted.history() == []


def test_an_agent_that_speaks_in_plain_chat_says_why_it_takes_no_tools(scripted: Scripted):
    scripted.begin(reply_mode="chat")
    with pytest.raises(openai.BadRequestError, match="plain chat"):
        ask(scripted)
