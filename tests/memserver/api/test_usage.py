"""What turns cost, and budgets for it."""

from memserver.testing.scripted import ScriptedModel, say
from tests.support.server import OneDatabase, serving


async def test_an_agent_whose_budget_is_used_up_fails_its_turns_until_the_next_day(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel([say("one"), say("two"), say("three")])) as server:
        agent = await server.create_agent(options={"daily_tokens": 10})
        other = await server.create_agent()
        await server.say(agent, "hello")
        url = f"/v1/agents/{agent}/messages"
        refused = await server.http.post(url, json={"text": "again"})
        over_openai = await server.http.post(
            "/v1/chat/completions",
            json={"model": agent, "messages": [{"role": "user", "content": "again"}]},
        )
        await server.say(other, "hello")  # has none
        with_yesterday = "UPDATE turn_steps SET at = at - interval '1 day' RETURNING 1"
        server.rows(with_yesterday)
        again = await server.http.post(url, json={"text": "now"})
    error = refused.json()["error"]
    assert (refused.status_code, error["code"]) == (429, "token_budget_exceeded")
    assert error["hint"].startswith("Ask again from ")
    assert 0 < int(refused.headers["Retry-After"]) <= 86_401
    assert over_openai.status_code == 429
    assert (again.status_code, again.json()["text"]) == (200, "three")


async def test_a_tenant_sees_its_own_usage_by_day_and_agent_and_the_operator_everybodys(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel([say("one"), say("two")])) as server:
        await server.operate()
        theirs = await server.create_tenant("acme")
        agents = [await server.create_agent() for _ in range(2)]
        for agent in agents:
            await server.say(agent, "hello")
        own = (await server.http.get("/v1/usage")).json()
        one = (await server.http.get("/v1/usage", params={"agent": agents[0]})).json()
        none = (await server.http.get("/v1/usage", headers=theirs)).json()
        seen = (await server.http.get("/v1/usage", params={"tenant": "acme"})).json()
        hidden = await server.http.get("/v1/usage", params={"tenant": "default"}, headers=theirs)
    [day] = own["days"]
    [part] = one["days"]
    assert (day["turns"], day["steps"], part["turns"]) == (2, 2, 1)
    assert day["completion_tokens"] == 2 * part["completion_tokens"] > 0
    assert none == seen == {"tenant": "acme", "days": []}
    assert hidden.status_code == 404


async def test_a_key_whose_budget_is_used_up_begins_no_turn_and_stores_no_message(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel([say("one"), say("two")])) as server:
        await server.operate()
        bounded = await server.create_key(daily_tokens=10)
        agent = await server.create_agent()
        url = f"/v1/agents/{agent}/messages"
        first = await server.http.post(url, json={"text": "hello"}, headers=bounded)
        refused = [
            await server.http.post(path, json=body, headers=bounded)
            for path, body in [
                (url, {"text": "again"}),
                (f"/v1/agents/{agent}/events", {"kind": "mail", "text": "again"}),
                (
                    "/v1/chat/completions",
                    {"model": agent, "messages": [{"role": "user", "content": "x"}]},
                ),
            ]
        ]
        read = await server.http.get(f"/v1/agents/{agent}/messages", headers=bounded)
        other = await server.http.post(url, json={"text": "now"})  # by the operator's key
    assert (first.status_code, other.json()["turn"], read.status_code) == (200, 2, 200)
    for answer in refused:
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (429, "token_budget_exceeded")
        assert 0 < int(answer.headers["Retry-After"]) <= 86_401
