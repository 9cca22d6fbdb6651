"""Calls that wait: for a person's approval, or for the caller who runs them. The turn is a stored state."""

import asyncio
from uuid import UUID

import pytest

from memserver.agent import turn
from memserver.agent.deadline import Deadline
from memserver.storage import leases
from memserver.testing.scripted import Call, Held, ScriptedModel, say
from memserver.tools.tool import ToolContext, make_tool
from tests.memserver.tools.waiting import CLIENT, answer, asked, counting
from tests.support.server import OneDatabase, serving

APPEND = Call("working_context_append", {"section": "human", "content": "Owes 5 euros."})


async def test_an_approved_call_runs_and_the_turn_continues(database: OneDatabase) -> None:
    ran: list[str] = []
    model = ScriptedModel([Call("pay", {"euros": 5}), say("Paid.")])
    async with serving(database, model, [counting(ran)]) as server:
        agent, call = await asked(server)
        assert ran == []
        assert server.rows("SELECT lease_owner, paused FROM agent_state") == [(None, True)]
        stands = await server.get(f"{agent}/turns/1")
        assert (stands["state"], stands["stop_reason"], stands["steps"]) == (
            "requires_action",
            None,
            1,
        )
        result = await answer(server, agent, call, "approval", approve=True)
        stands = await server.get(f"{agent}/turns/1")
    whole = result.json()
    assert ran == ["5"]
    assert (whole["text"], whole["steps"]) == ("Paid.", 2)
    assert [item["tool_call"]["result"] for item in whole["messages"]] == ["paid 5", ""]
    assert (stands["state"], stands["steps"]) == ("done", 2)
    assert model.last_prompt[-1].text == "OK. paid 5"


async def test_a_denied_call_does_not_run_and_the_model_sees_the_reason(
    database: OneDatabase,
) -> None:
    ran: list[str] = []
    model = ScriptedModel([Call("pay", {"euros": 500}), say("I may not.")])
    async with serving(database, model, [counting(ran)]) as server:
        agent, call = await asked(server)
        result = await answer(server, agent, call, "approval", approve=False, reason="Too much.")
        again = await answer(server, agent, call, "approval", approve=True)
    assert (ran, result.json()["text"]) == ([], "I may not.")
    assert model.last_prompt[-1].text == "Failed: A person refused this: Too much."
    assert again.status_code == 409


async def test_a_waiting_call_survives_a_restart_and_other_messages_wait_after_it(
    database: OneDatabase,
) -> None:
    ran: list[str] = []
    first = ScriptedModel([Call("pay", {"euros": 5})])
    async with serving(database, first, [counting(ran)]) as one:
        agent, call = await asked(one)
        later = await one.services.conversation.post("default", UUID(agent), "Are you there?")
    second = ScriptedModel([say("Paid."), say("I am here.")])
    async with serving(database, second, [counting(ran)]) as two:
        waiting = (await two.http.get("/v1/calls/waiting")).json()
        assert [(item["agent_id"], item["call_id"]) for item in waiting["items"]] == [(agent, call)]
        assert waiting["items"][0]["arguments"] == {"euros": 5}
        history = await two.get(f"{agent}/messages", order="asc")
        assert [item["text"] for item in history["items"]] == ["Pay!", ""]
        assert second.seen == []
        result = await answer(two, agent, call, "approval", approve=True)
        assert result.json()["text"] == "Paid."
        await two.services.conversation.result("default", later)
        assert (await two.http.get("/v1/calls/waiting")).json()["items"] == []
        history = await two.get(f"{agent}/messages", order="asc")
    said = [item["text"] for item in history["items"] if item["text"]]
    assert (ran, said) == (["5"], ["Pay!", "Paid.", "Are you there?", "I am here."])


async def test_no_worker_takes_a_paused_agent_whatever_waits_after_it(
    database: OneDatabase,
) -> None:
    model = ScriptedModel([Call("pay", {"euros": 5}), say("Then not."), say("Hello!")])
    async with serving(database, model, [counting([])]) as server:
        agent, call = await asked(server)
        later = await server.services.conversation.post("default", UUID(agent), "Hello?")
        assert server.rows("SELECT state FROM turns ORDER BY turn") == [
            ("requires_action",),
            ("waiting",),
        ]
        assert server.rows("SELECT * FROM agents_waiting(10)") == []
        async with server.services.database.tenant("default") as tx:
            assert await leases.acquire(tx, UUID(agent), "another worker", 2) is None
        await answer(server, agent, call, "approval", approve=False)
        result = await server.services.conversation.result("default", later)
    assert result.messages[-1].text == "Hello!"


async def test_a_memory_tool_waits_too_and_its_effect_comes_with_the_approval(
    database: OneDatabase,
) -> None:
    model = ScriptedModel([APPEND, say("Noted.")])
    async with serving(database, model) as server:
        agent, call = await asked(server, tool="working_context_append")
        before = await server.get(f"{agent}/working-context")
        result = await answer(server, agent, call, "approval", approve=True)
        after = await server.get(f"{agent}/working-context")
    assert result.json()["text"] == "Noted."
    texts = [memory["sections"][1]["text"] for memory in (before, after)]
    assert texts == ["", "Owes 5 euros."]


async def test_the_caller_runs_a_client_tool_and_gives_its_result(database: OneDatabase) -> None:
    model = ScriptedModel([Call("open_file", {"path": "a.txt"}), say("It says hi.")])
    async with serving(database, model) as server:
        await server.http.post("/v1/tools", json=CLIENT)
        agent, call = await asked(server, tool="open_file")
        wrong = await answer(server, agent, call, "approval", approve=True)
        result = await answer(server, agent, call, "result", result={"text": "hi"})
    assert wrong.status_code == 409
    assert "waits for its result" in wrong.json()["error"]["message"]
    assert result.json()["text"] == "It says hi."
    assert model.last_prompt[-1].text == 'OK. {"text": "hi"}'


async def test_a_client_tool_may_fail_and_its_result_is_cut(database: OneDatabase) -> None:
    steps = [Call("open_file", {"path": name}) for name in ("a", "b")]
    model = ScriptedModel([*steps, say("No.")])
    async with serving(database, model, tool_result_characters=100) as server:
        await server.http.post("/v1/tools", json=CLIENT)
        agent, call = await asked(server, tool="open_file")
        paused = await answer(server, agent, call, "result", result="no file", failed=True)
        assert paused.json()["stop_reason"] == "requires_action"
        second = paused.json()["messages"][-1]["tool_call"]["id"]
        assert model.last_prompt[-1].text == "Failed: no file"
        result = await answer(server, agent, second, "result", result="x" * 100_000)
    assert result.json()["text"] == "No."
    assert "a result may have 100 characters, this one has 100000" in model.last_prompt[-1].text


async def test_many_calls_of_one_turn_may_wait_one_after_another(database: OneDatabase) -> None:
    rounds = 7
    steps = [Call("open_file", {"path": str(number)}) for number in range(rounds)]
    async with serving(database, ScriptedModel([*steps, say("All read.")])) as server:
        await server.http.post("/v1/tools", json=CLIENT)
        agent, call = await asked(server, tool="open_file")
        for number in range(rounds):
            got = (await answer(server, agent, call, "result", result="x")).json()
            if number < rounds - 1:
                call = got["messages"][-1]["tool_call"]["id"]
    assert (got["text"], got["steps"]) == ("All read.", rounds + 1)


async def test_a_cancelled_turn_ends_without_the_call_and_the_inbox_continues(
    database: OneDatabase,
) -> None:
    ran: list[str] = []
    model = ScriptedModel([Call("pay", {"euros": 5}), say("All is well.")])
    async with serving(database, model, [counting(ran)]) as server:
        agent, _ = await asked(server)
        later = await server.services.conversation.post("default", UUID(agent), "Never mind.")
        cancelled = await server.http.post(f"/v1/agents/{agent}/turns/1/cancel")
        again = await server.http.post(f"/v1/agents/{agent}/turns/1/cancel")
        result = await server.services.conversation.result("default", later)
    assert result.messages[-1].text == "All is well."
    assert ran == []
    stands = cancelled.json()
    assert (stands["state"], stands["stop_reason"], stands["steps"]) == ("done", "cancelled", 1)
    assert again.json() == stands
    assert any("cancelled before it ran" in message.text for message in model.last_prompt)


async def test_an_agent_that_waits_can_be_deleted(database: OneDatabase) -> None:
    async with serving(
        database, ScriptedModel([Call("pay", {"euros": 5})]), [counting([])]
    ) as server:
        agent, call = await asked(server)
        assert (await server.http.delete(f"/v1/agents/{agent}")).status_code == 204
        gone = await answer(server, agent, call, "approval", approve=True)
    assert gone.status_code == 404


async def test_a_stream_ends_with_what_is_to_be_done_and_the_answer_streams_on(
    database: OneDatabase,
) -> None:
    model = ScriptedModel([Call("pay", {"euros": 5}), say("Paid.")])
    async with serving(database, model, [counting([])]) as server:
        agent = await server.create_agent()
        await server.http.put(f"/v1/agents/{agent}/tools/pay", json={"approval": True})
        events = await server.events(agent, "Pay!")
        kinds = [kind for kind, _ in events]
        data = dict(events)["action_required"]
        late = await server.http.get(f"/v1/agents/{agent}/turns/1/events")
        result = await answer(server, agent, data["call_id"], "approval", approve=True, stream=True)
    assert kinds == ["turn_started", "tool_call", "usage", "action_required"]
    assert (data["turn"], data["waits_for"]) == (1, "approval")
    assert "event: action_required" in late.text
    reported = [
        line.removeprefix("event: ") for line in result.text.splitlines() if "event: " in line
    ]
    assert reported == [
        "turn_started",
        "tool_call",
        "tool_result",
        "message_delta",
        "message_delta",
        "message_delta",
        "tool_call",
        "tool_result",
        "message",
        "usage",
        "turn_ended",
    ]


async def test_a_repeated_request_gives_how_the_turn_stands(database: OneDatabase) -> None:
    model = ScriptedModel([Call("pay", {"euros": 5}), say("Paid.")])
    async with serving(database, model, [counting([])]) as server:
        agent = await server.create_agent()
        await server.http.put(f"/v1/agents/{agent}/tools/pay", json={"approval": True})
        key = {"Idempotency-Key": "one"}
        first = await server.say(agent, "Pay!", **key)
        second = await server.say(agent, "Pay!", **key)
        assert first == second
        call = first["messages"][-1]["tool_call"]["id"]
        await answer(server, agent, call, "approval", approve=True)
        third = await server.say(agent, "Pay!", **key)
    assert (third["text"], third["stop_reason"]) == ("Paid.", "message_sent")


async def test_an_answer_that_is_sent_again_with_its_key_counts_once_and_gets_the_same(
    database: OneDatabase,
) -> None:
    ran: list[str] = []
    held = Held(say("Paid."), asyncio.Event())
    model = ScriptedModel([Call("pay", {"euros": 5}), held])
    async with serving(database, model, [counting(ran)]) as server:
        agent, call = await asked(server)
        url, key = f"/v1/agents/{agent}/calls/{call}/approval", {"Idempotency-Key": "k"}
        first = asyncio.create_task(server.http.post(url, json={"approve": True}, headers=key))
        await held.reached.wait()
        again = asyncio.create_task(server.http.post(url, json={"approve": True}, headers=key))
        other = await server.http.post(url, json={"approve": False}, headers=key)
        keyless = await server.http.post(url, json={"approve": True})
        held.release.set()
        answers = [await first, await again]
        late = await server.http.post(url, json={"approve": True, "stream": True}, headers=key)
    assert ran == ["5"]
    assert [each.json()["text"] for each in answers] == ["Paid."] * 2
    assert answers[0].content == answers[1].content
    assert [each.status_code for each in (other, keyless)] == [409] * 2
    assert "used with another request" in other.text
    assert "event: turn_ended" in late.text


async def test_a_turn_that_is_cancelled_again_with_its_key_is_cancelled_once(
    database: OneDatabase,
) -> None:
    model = ScriptedModel([Call("pay", {"euros": 5})])
    async with serving(database, model, [counting([])]) as server:
        agent, _ = await asked(server)
        url = f"/v1/agents/{agent}/turns/1/cancel"
        first, again = [
            await server.http.post(url, headers={"Idempotency-Key": "k"}) for _ in range(2)
        ]
        keyless = await server.http.post(url)
    assert first.json()["stop_reason"] == "cancelled"
    assert first.content == again.content
    assert keyless.json() == first.json()


async def test_no_prompt_shows_a_call_without_its_result(database: OneDatabase) -> None:
    async with serving(
        database, ScriptedModel([Call("pay", {"euros": 5})]), [counting([])]
    ) as server:
        agent, _ = await asked(server)
        context = await server.get(f"{agent}/context")
        [[tokens]] = server.rows("SELECT tokens FROM messages WHERE position = 1001")
    assert [message["text"] for message in context["queue"]] == ["Pay!"]
    assert tokens > 0


async def test_an_approved_memory_tool_that_hangs_is_closed_with_the_turns_time(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(context: ToolContext) -> str:
        """Hang."""
        tx = await context.transaction.get()
        await tx.execute("UPDATE agents SET name = 'half done'")
        monkeypatch.setattr(turn, "Deadline", Deadline)
        await asyncio.Event().wait()
        return "never"

    model = ScriptedModel([Call("hang"), say("It hung.")])
    tools = [make_tool(hang, transactional=True)]
    async with serving(database, model, tools) as server:
        agent, call = await asked(server, tool="hang")
        monkeypatch.setattr(turn, "Deadline", lambda _: Deadline(1.0))
        result = await answer(server, agent, call, "approval", approve=True)
        history = await server.get(f"{agent}/messages", order="asc")
        assert (await server.say(agent, "And?"))["text"] == "It hung."
        assert server.rows("SELECT count(*) FROM agents WHERE name = 'half done'") == [(0,)]
    assert result.status_code == 504
    assert history["items"][1]["tool_call"]["state"] == "interrupted"


async def test_a_tool_that_was_taken_away_meanwhile_fails(database: OneDatabase) -> None:
    ran: list[str] = []
    tool = counting(ran)
    model = ScriptedModel([Call("pay", {"euros": 5}), say("It is gone.")])
    async with serving(database, model, [tool]) as server:
        agent, call = await asked(server)
        await server.http.delete(f"/v1/agents/{agent}/tools/pay")
        result = await answer(server, agent, call, "approval", approve=True)
    assert (ran, result.json()["text"]) == ([], "It is gone.")
    assert model.last_prompt[-1].text == "Failed: This tool is no longer there."


async def test_an_approved_call_that_ran_when_its_worker_died_is_not_run_again(
    database: OneDatabase,
) -> None:
    started = asyncio.Event()
    runs: list[str] = []

    async def pay(context: ToolContext, euros: int) -> str:
        """Pay."""
        runs.append(context.call_id)
        started.set()
        await asyncio.Event().wait()
        return "never"

    tool = make_tool(pay)
    async with serving(database, ScriptedModel([Call("pay", {"euros": 5})]), [tool]) as one:
        agent, call = await asked(one)
        post = asyncio.create_task(answer(one, agent, call, "approval", approve=True))
        await started.wait()
    post.cancel()
    await asyncio.gather(post, return_exceptions=True)
    model = ScriptedModel([say("It was interrupted."), say("Yes.")])
    async with serving(database, model, [tool]) as two:
        assert (await two.say(agent, "Are you there?"))["text"] == "Yes."
        stands = await two.get(f"{agent}/turns/1")
    assert runs == [call]
    assert model.seen[0].prompt[-1].text.startswith("Failed: The server stopped while this ran")
    assert (stands["state"], stands["steps"]) == ("done", 2)


async def test_the_answer_is_kept_when_the_worker_dies_before_it_continues(
    database: OneDatabase,
) -> None:
    ran: list[str] = []
    held = Held(say("never"), asyncio.Event())
    async with serving(
        database, ScriptedModel([Call("pay", {"euros": 5}), held]), [counting(ran)]
    ) as one:
        agent, call = await asked(one)
        post = asyncio.create_task(answer(one, agent, call, "approval", approve=True))
        await held.reached.wait()
    post.cancel()
    await asyncio.gather(post, return_exceptions=True)
    model = ScriptedModel([say("Paid."), say("Yes.")])
    async with serving(database, model, [counting(ran)]) as two:
        assert (await two.say(agent, "Are you there?"))["text"] == "Yes."
    assert ran == ["5"]
    assert model.seen[0].prompt[-1].text == "OK. paid 5"


@pytest.mark.parametrize(
    "path", ["calls/call_0/approval", "calls/call_0/result", "calls/%00/approval"]
)
async def test_an_unknown_call_is_not_found(database: OneDatabase, path: str) -> None:
    body = {"approve": True} if path.endswith("approval") else {"result": "x"}
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        answer = await server.http.post(f"/v1/agents/{agent}/{path}", json=body)
        cancel = await server.http.post(f"/v1/agents/{agent}/turns/1/cancel")
    assert (answer.status_code, cancel.status_code) == (404, 404)
