"""/metrics: what was measured, for whom it is."""

from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from memserver.testing.scripted import Call, ScriptedModel, say
from tests.support.processes import client, server, settings_on
from tests.support.server import OneDatabase, Server, serving


async def samples(server: Server) -> dict[tuple[str, str], float]:
    """Values by name and labels, without buckets."""
    answer = await server.http.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        (each.name, " ".join(f"{key}={value}" for key, value in each.labels.items())): each.value
        for family in text_string_to_metric_families(answer.text)
        for each in family.samples
        if not each.name.endswith("_bucket")
    }


async def test_requests_turns_tools_and_jobs_are_counted_by_route_reason_and_outcome(
    database: OneDatabase,
) -> None:
    steps = [Call("working_context_append", {"text": "x", "request_heartbeat": True}), say("hi")]
    async with serving(database, ScriptedModel(steps)) as server:
        agent = await server.create_agent()
        await server.say(agent, "hello")
        await server.http.get("/v1/agents/nobody")
        await server.http.get("/nowhere/at/all")
        waiting = await samples(server)
        await server.run_jobs()
        found = await samples(server)
    posts = "http_request_method=POST http_route=/v1/agents/{agent}/messages"
    request, tool = "http_server_request_duration_seconds_count", "memserver_tool_duration_seconds_count"
    assert found[request, f"{posts} http_response_status_code=200"] == 1
    assert found[request, "http_request_method=GET http_route= http_response_status_code=404"] == 1
    assert found["memserver_turn_duration_seconds_count", "memserver_stop_reason=message_sent"] == 1
    assert found[tool, "memserver_tool_kind=memory memserver_outcome=done"] == 2
    assert found["memserver_turns_running", ""] == 0
    assert found["memserver_agents_waiting", ""] == 0
    assert found["memserver_database_up", ""] == 1
    job = "index_messages"
    assert waiting["memserver_jobs", f"job={job} status=todo"] == 1
    assert found["memserver_job_duration_seconds_count", f"memserver_job_name={job} memserver_outcome=done"] >= 1
