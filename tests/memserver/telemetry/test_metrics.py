"""/metrics: what was measured, for whom it is."""

import asyncio

from prometheus_client.parser import text_string_to_metric_families

from memserver.testing.scripted import Call, ScriptedModel, say
from memserver.testing.scripted_server import create_scripted_app
from tests.support import http_app
from tests.support.once_held import OnceHeld
from tests.support.server import OneDatabase, Server, serving


async def samples(server: Server) -> dict[tuple[str, str], float]:
    """Values by name and labels, without buckets."""
    answer = await server.http.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        (
            each.name,
            " ".join(f"{key}={value}" for key, value in sorted(each.labels.items())),
        ): each.value
        for family in text_string_to_metric_families(answer.text)
        for each in family.samples
        if not each.name.endswith("_bucket")
    }


async def test_requests_turns_tools_and_jobs_are_counted_by_route_reason_and_outcome(
    database: OneDatabase,
) -> None:
    steps = [
        Call(
            "working_context_replace", {"section": "human", "old_content": "x", "new_content": "y"}
        ),
        say("hi"),
    ]
    async with serving(database, ScriptedModel(steps)) as server:
        agent = await server.create_agent()
        await server.say(agent, "hello")
        await server.http.get("/v1/agents/nobody")
        await server.http.get("/nowhere/at/all")
        waiting = await samples(server)
        await server.run_jobs()
        found = await samples(server)
    posts = "http_route=/v1/agents/{agent}/messages"
    request, tool = (
        "http_server_request_duration_seconds_count",
        "memserver_tool_duration_seconds_count",
    )
    assert found[request, f"http_request_method=POST http_response_status_code=200 {posts}"] == 1
    assert found[request, "http_request_method=GET http_response_status_code=404 http_route="] == 1
    assert found["memserver_turn_duration_seconds_count", "memserver_stop_reason=message_sent"] == 1
    assert found[tool, "memserver_outcome=done memserver_tool_kind=memory"] == 1
    assert found[tool, "memserver_outcome=failed memserver_tool_kind=memory"] == 1
    assert found["memserver_turns_running", ""] == 0
    assert found["memserver_agents_waiting", ""] == 0
    assert found["memserver_database_up", ""] == 1
    job = "index_messages"
    assert waiting["memserver_jobs", f"job={job} status=todo"] == 1
    assert (
        found[
            "memserver_job_duration_seconds_count",
            f"memserver_job_name={job} memserver_outcome=done",
        ]
        >= 1
    )


async def test_turns_that_wait_for_a_place_at_the_model_are_counted_while_they_wait(
    database: OneDatabase,
) -> None:
    model = OnceHeld(say("hi"))
    with http_app.serving(create_scripted_app(model)) as url:
        endpoint = {"llm_base_url": f"{url}/v1", "llm_max_in_flight": 1}
        async with serving(database, ScriptedModel(), **endpoint) as server:
            agents = [await server.create_agent() for _ in range(3)]
            turns = [asyncio.create_task(server.say(agent, "hello")) for agent in agents]
            try:
                while (await samples(server))["memserver_turns_waiting", ""] < 2:
                    assert not any(turn.done() for turn in turns)
            finally:
                model.let_go()
            await asyncio.gather(*turns)
            assert (await samples(server))["memserver_turns_waiting", ""] == 0


async def test_only_the_operator_reads_metrics_unless_a_setting_opens_them(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel()) as server:
        await server.operate()
        theirs = await server.create_tenant("acme")
        refused = await server.http.get("/metrics", headers=theirs)
        nobody = await server.http.get("/metrics", headers={"Authorization": ""})
        allowed = await server.http.get("/metrics")
    async with serving(database, ScriptedModel(), metrics="open") as server:
        opened = await server.http.get("/metrics")
    async with serving(database, ScriptedModel(), metrics="off") as server:
        off = await server.http.get("/metrics", headers=theirs)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
    assert (nobody.status_code, allowed.status_code, opened.status_code) == (401, 200, 200)
    assert (off.status_code, off.json()["error"]["code"]) == (404, "not_found")
