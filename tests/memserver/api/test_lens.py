"""A turn under the lens: what each step's model was sent, what it replied, and where the time went."""

import asyncio
from typing import Any

from memserver.storage import turn_steps
from memserver.testing.scripted import Call, Held, ScriptedModel, say
from tests.support.model_endpoint import endpoint, serving_over_http
from tests.support.server import OneDatabase, Server, serving

TRACED = "SELECT turn FROM turn_steps WHERE request IS NOT NULL ORDER BY turn"


async def steps_of(server: Server, agent: str, turn: int = 1) -> dict[str, Any]:
    return await server.get(f"{agent}/turns/{turn}/steps")


async def test_each_step_shows_the_very_prompt_the_raw_reply_and_where_the_time_went(
    database: OneDatabase,
) -> None:
    append = Call("working_context_append", {"section": "human", "content": "Name: Ada"})
    with endpoint(
        lambda prompt, _: append if prompt[-1].role == "user" else say("Hello!")
    ) as model:
        async with serving_over_http(database, model.url, trace=True) as server:
            agent = await server.create_agent(name="sam")
            answer = await server.say(agent, "I am Ada.")
            looked = await steps_of(server, agent)
            shown = await server.get(f"{agent}/context")
    assert looked["traced"]
    assert 0 <= looked["waited"] <= looked["took"]
    first, second = looked["steps"]
    assert [each["step"] for each in looked["steps"]] == [1, 2]
    assert [each["position"] for each in looked["steps"]] == [1001, 1002]
    assert (first["stop"], second["stop"]) == (None, "message_sent")
    assert "I am Ada." in first["request"]["messages"][-1]["content"]
    assert first["request"]["tools"]
    assert "Name: Ada" in second["request"]["messages"][0]["content"]
    assert "working_context_append" in str(first["reply"]["calls"])
    assert first["seconds"].keys() == {"memory", "queue", "model", "tools", "database", "other"}
    assert first["seconds"]["model"] > 0
    assert first["seconds"]["database"] > 0
    prompts = [each["usage"]["prompt_tokens"] for each in looked["steps"]]
    assert sum(prompts) == answer["usage"]["prompt_tokens"]
    assert list(first["parts"]) == [part["name"] for part in shown["parts"]]


async def test_prompts_are_stored_only_where_that_is_wanted_and_for_a_while(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel(lambda *_: say("Hello!"))) as server:
        plain = await server.create_agent(name="plain")
        traced = await server.create_agent(name="traced", options={"trace": True})
        for agent in (plain, traced):
            await server.say(agent, "Hi.")
        without, with_it = await steps_of(server, plain), await steps_of(server, traced)
        forgotten = await turn_steps.forget_traces(server.services.database, 3600)
        gone = await turn_steps.forget_traces(server.services.database, 0)
        later = await steps_of(server, traced)
    assert not without["traced"]
    assert without["steps"][0]["request"] is None is without["steps"][0]["reply"]
    assert without["steps"][0]["usage"]["prompt_tokens"] > 0
    assert with_it["steps"][0]["request"]["messages"][-1]["text"].endswith("Hi.")
    assert (forgotten, gone) == (0, 1)
    assert later["steps"][0] == {**with_it["steps"][0], "request": None, "reply": None}


async def test_what_is_erased_is_in_no_stored_prompt_of_that_turn_or_a_later_one(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel(lambda *_: say("Hello!")), trace=True) as server:
        agent = await server.create_agent(name="sam")
        for text in ("One.", "My secret.", "Three."):
            await server.say(agent, text)
        body = {"turns": [2], "redact": True}
        erased = await server.http.post(f"/v1/agents/{agent}/messages/delete", json=body)
        left = server.rows(TRACED)
        await server.http.delete(f"/v1/agents/{agent}")
        rows = server.rows("SELECT count(*) FROM turn_steps")
    assert erased.status_code == 200
    assert left == [(1,)]
    assert rows == [(0,)]


async def test_a_turn_that_runs_while_a_message_is_erased_stores_no_prompt_that_has_it(
    database: OneDatabase,
) -> None:
    held = Held(say("Hello!"), asyncio.Event())
    script = ScriptedModel([say("Hello!"), held, say("Hello!")])
    async with serving(database, script, trace=True) as server:
        agent = await server.create_agent(name="sam")
        await server.say(agent, "My secret is quarkmoth.")
        running = asyncio.create_task(server.say(agent, "Hi."))
        await held.reached.wait()
        await server.http.delete(f"/v1/agents/{agent}/turns/1")
        held.release.set()
        await running
        during = server.rows("SELECT request, reply FROM turn_steps")
        await server.say(agent, "Hi again.")
        after = server.rows(TRACED)
    assert "quarkmoth" in str(script.seen[1].prompt)
    assert during == [(None, None), (None, None)]
    assert after == [(3,)]


async def test_a_turn_that_fails_shows_the_request_that_failed(database: OneDatabase) -> None:
    with endpoint() as model:
        async with serving_over_http(
            database, model.url, trace=True, llm_retries=0, llm_mode="tools"
        ) as server:
            agent = await server.create_agent(name="sam", model="nobody")
            failed = await server.http.post(
                f"/v1/agents/{agent}/messages", json={"text": "Are you there?"}
            )
            looked = await steps_of(server, agent)
            load = (await server.http.get("/v1/operations")).json()
    code = failed.json()["error"]["code"]
    [step] = looked["steps"]
    assert (step["step"], step["position"], step["stop"]) == (1, None, "error")
    assert step["error"] == code
    assert load["errors"] == {code: 1}
    assert [each["errors"] for each in load["minutes"]][-1] + load["minutes"][-2]["errors"] == 1


async def test_a_call_that_waited_is_one_step_with_the_time_of_both_its_halves(
    database: OneDatabase,
) -> None:
    append = Call("working_context_append", {"section": "human", "content": "Name: Ada"})
    model = ScriptedModel([append, say("Done.")])
    async with serving(database, model, trace=True) as server:
        agent = await server.create_agent(name="sam")
        await server.http.put(
            f"/v1/agents/{agent}/tools/working_context_append", json={"approval": True}
        )
        asked = await server.say(agent, "I am Ada.")
        call = asked["messages"][-1]["tool_call"]["id"]
        waiting = await steps_of(server, agent)
        await server.http.post(f"/v1/agents/{agent}/calls/{call}/approval", json={"approve": True})
        looked = await steps_of(server, agent)
    assert [each["step"] for each in waiting["steps"]] == [1]
    assert [each["step"] for each in looked["steps"]] == [1, 2]
    before, after = waiting["steps"][0], looked["steps"][0]
    assert after["seconds"]["database"] > before["seconds"]["database"]
    assert {**after, "seconds": None} == {**before, "seconds": None}
