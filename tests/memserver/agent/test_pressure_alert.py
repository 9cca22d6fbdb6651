"""The pressure alert comes after the answer, in steps of its own that can only save."""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from memserver.errors import ModelUnavailable, TurnHasEnded
from memserver.messages import PromptMessage, ToolSpec
from memserver.testing.scripted import Call, Held, Rule, ScriptedModel, Step, say
from tests.support.server import OneDatabase, Server, serving

WINDOW, RESERVED = 2600, 200
SAVING = {
    "working_context_append",
    "working_context_replace",
    "archival_memory_insert",
    "nothing_to_save",
}
ALERTS = "SELECT count(*) FROM messages WHERE starts_with(content, 'Memory pressure')"
JOBS = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'todo' AND task_name = 'compact'"


def note(content: str, **more: Any) -> Call:
    return Call("working_context_append", {"section": "human", "content": content, **more})


def model_of(script: Sequence[Step] | Rule, on_alert: Step | Rule) -> ScriptedModel:
    return ScriptedModel(script, on_alert=on_alert, context_window=WINDOW)


def in_order(*steps: Step) -> Rule:
    left = list(steps)
    return lambda _prompt, _tools: left.pop(0)


async def under_pressure(server: Server, fill: float = 0.8, **options: Any) -> str:
    """An agent whose prompt is that full."""
    agent = await server.create_agent(options=options)
    await bring_to(server, agent, fill)
    return agent


async def bring_to(server: Server, agent: str, fill: float) -> None:
    used = (await server.get(f"{agent}/context"))["used"]
    count = int((fill * (WINDOW - RESERVED) - used) / 26)
    past = [{"role": "user", "text": f"past{number} {'word ' * 19}"} for number in range(count)]
    done = await server.http.post(f"/v1/agents/{agent}/messages/import", json={"messages": past})
    assert done.status_code == 200


def names(answer: dict[str, Any]) -> list[str]:
    return [m["tool_call"]["name"] if m["tool_call"] else m["role"] for m in answer["messages"]]


async def test_the_step_that_answers_shows_no_alert_and_the_next_one_can_only_save(
    database: OneDatabase,
) -> None:
    model = model_of([say("Hello!"), say("Yes.")], note("Name: Ada"))
    async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
        agent = await under_pressure(server)
        answer = await server.say(agent, "Hello.")
        again = await server.say(agent, "Are you there?")
        assert server.rows(ALERTS) == [(1,)]
    answering, alerted, _ = model.seen
    assert "Memory pressure" not in str(answering.prompt)
    assert alerted.prompt[-1].text.startswith("[system] Memory pressure")
    assert {tool.name for tool in alerted.tools} == SAVING
    assert "nothing_to_save" not in {tool.name for tool in answering.tools}
    assert names(answer) == ["send_message", "system", "working_context_append"]
    assert (answer["text"], answer["stop_reason"], answer["steps"]) == ("Hello!", "message_sent", 2)
    assert names(again) == ["send_message"]


async def test_a_heartbeat_or_a_refused_call_gets_another_step_and_five_are_the_most(
    database: OneDatabase,
) -> None:
    steps = [
        note("one", request_heartbeat=True),
        Call("working_context_append", {"section": "human", "content": "x" * 2000}),
        note("two"),
    ]
    insatiable = note("more", request_heartbeat=True)
    model = model_of(lambda _p, _t: say("Yes."), in_order(*steps, *[insatiable] * 6))
    async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
        first = await server.say(await under_pressure(server), "Hello.")
        second = await server.say(await under_pressure(server), "Hello.")
        third = await server.say(await under_pressure(server, max_steps=2), "Hello.")
    assert [each["stop_reason"] for each in (first, second, third)] == ["message_sent"] * 3
    assert [each["steps"] for each in (first, second, third)] == [4, 6, 2]
    assert [m["tool_call"]["state"] for m in first["messages"] if m["tool_call"]] == [
        "done",
        "done",
        "failed",
        "done",
    ]


async def test_nothing_to_save_ends_it_without_a_result(database: OneDatabase) -> None:
    model = model_of([say("Yes.")], Call("nothing_to_save"))
    async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
        agent = await under_pressure(server)
        events = await server.events(agent, "Hello.")
        listed = await server.http.get("/v1/tools")
    committed = [(kind, data) for kind, data in events if "position" in data]
    assert [kind for kind, _ in committed] == [
        *("tool_call", "tool_result", "message"),
        "system_note",
        *("tool_call", "tool_result"),
    ]
    assert committed[-2][1]["name"] == "nothing_to_save"
    assert committed[-1][1]["result"] == ""
    assert events[-1][1]["stop_reason"] == "message_sent"
    assert "nothing_to_save" not in listed.text


async def test_a_queue_over_the_target_is_compacted_only_after_the_alert(
    database: OneDatabase,
) -> None:
    seen: list[Any] = []

    def look(_prompt: Sequence[PromptMessage], _tools: Sequence[ToolSpec]) -> Call:
        seen.append(server.rows(JOBS))
        return Call("nothing_to_save")

    model = model_of([say("Yes.")], look)
    async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
        agent = await under_pressure(server, 0.92)
        await server.say(agent, "Hello.")
        assert server.rows(JOBS) == [(1,)]
    assert seen == [[(0,)]]


async def test_a_turn_cut_off_in_the_alerts_step_resumes_there_and_answers_once(
    database: OneDatabase,
) -> None:
    held = Held(note("never"), asyncio.Event())
    model = model_of([say("Hello!")], held)
    async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
        agent = await under_pressure(server)
        asking = asyncio.create_task(
            server.http.post(
                f"/v1/agents/{agent}/messages",
                json={"text": "Hello."},
                headers={"Idempotency-Key": "k"},
            )
        )
        await held.reached.wait()
        said = "SELECT content FROM messages WHERE role = 'assistant' AND content <> ''"
        assert server.rows(said) == [("Hello!",)]
        stands = (await server.http.get(f"/v1/agents/{agent}/turns/2")).json()
        assert (stands["state"], stands["stop_reason"]) == ("running", None)
    asking.cancel()
    later = model_of([], note("Name: Ada"))
    async with serving(database, later, llm_max_output_tokens=RESERVED) as server:
        answer = await server.say(agent, "Hello.", **{"Idempotency-Key": "k"})
        assert server.rows(ALERTS) == [(1,)]
    assert names(answer) == ["send_message", "system", "working_context_append"]
    assert (answer["text"], answer["stop_reason"]) == ("Hello!", "message_sent")


@pytest.mark.parametrize(
    "failure", [ModelUnavailable("gone"), "no call at all", RuntimeError("a fault of ours")]
)
async def test_an_alerts_step_that_fails_leaves_the_answer_and_the_agent_as_they_are(
    database: OneDatabase, failure: Step
) -> None:
    model = model_of([say("Hello!"), say("Still here.")], failure)
    async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
        agent = await under_pressure(server)
        answer = await server.say(agent, "Hello.")
        again = await server.say(agent, "And now?")
    assert (answer["text"], answer["stop_reason"]) == ("Hello!", "message_sent")
    assert again["text"] == "Still here."


async def test_what_a_person_has_to_approve_is_not_offered_and_nothing_else_means_no_alert(
    database: OneDatabase,
) -> None:
    model = model_of(lambda _p, _t: say("Yes."), Call("nothing_to_save"))
    async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
        agent = await under_pressure(server)
        tools = f"/v1/agents/{agent}/tools"
        await server.http.put(f"{tools}/archival_memory_insert", json={"approval": True})
        await server.http.delete(f"{tools}/working_context_append")
        await server.say(agent, "Hello.")
        other = await server.create_agent()
        for name in SAVING - {"nothing_to_save"}:
            await server.http.delete(f"/v1/agents/{other}/tools/{name}")
        await bring_to(server, other, 0.92)
        without = await server.say(other, "Hello.")
        assert server.rows(JOBS) == [(1,)]
    assert {tool.name for tool in model.seen[1].tools} == {
        "working_context_replace",
        "nothing_to_save",
    }
    assert names(without) == ["send_message"]


async def test_openai_clients_get_the_answer_when_the_turn_has_ended(database: OneDatabase) -> None:
    model = model_of([say("Hello!"), say("Again!")], Call("nothing_to_save"))
    async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
        agent = await under_pressure(server)
        asked = {"model": agent, "messages": [{"role": "user", "content": "Hello."}]}
        answer = (await server.http.post("/v1/chat/completions", json=asked)).json()
        streamed = await under_pressure(server)
        stream = await server.http.post(
            "/v1/chat/completions", json={**asked, "model": streamed, "stream": True}
        )
    assert answer["choices"][0]["message"]["content"] == "Hello!"
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["memserver"]["stop_reason"] == "message_sent"
    assert stream.text.count('finish_reason": "stop') == 1
    assert "Memory pressure" not in stream.text


async def test_an_agent_that_wants_no_alert_is_evicted_from_all_the_same(
    database: OneDatabase,
) -> None:
    model = model_of(lambda _prompt, _tools: say("Fine."), note("never"))
    async with serving(database, model) as server:
        agent = await under_pressure(server, pressure_alert=False)
        for number in range(12):
            await server.say(agent, f"{number}. {'It rained on the market again. ' * 8}")
    assert not any(tool.name == "nothing_to_save" for seen in model.seen for tool in seen.tools)
    assert "Earlier messages are out of sight" in model.last_prompt[0].text


async def test_a_turn_that_saves_after_its_answer_can_be_cancelled_and_keeps_the_answer(
    database: OneDatabase,
) -> None:
    held = Held(note("Name: Ada"), asyncio.Event())
    model = model_of([say("Hello!"), say("Yes.")], held)
    async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
        agent = await under_pressure(server)
        asking = asyncio.create_task(server.say(agent, "Hello."))
        await held.reached.wait()
        [[turn]] = server.rows("SELECT turn FROM turns WHERE state = 'running'")
        conversation = server.services.conversation
        with pytest.raises(TurnHasEnded):  # as where a client hangs up that has read the answer
            await conversation.cancel("default", UUID(agent), turn, if_unanswered=True)
        await conversation.cancel("default", UUID(agent), turn)
        answer = await asking
        assert (await server.say(agent, "And?"))["text"] == "Yes."
    assert (answer["text"], answer["stop_reason"]) == ("Hello!", "cancelled")
