"""What is JSON to Python and to nobody else, or beyond what is stored, is refused and no fault of the server."""

from typing import Any

import pytest

from memserver.testing.scripted import ScriptedModel
from tests.support.server import OneDatabase, serving


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


BODIES = {
    "a number that is none": '{"metadata": {"a": NaN}}',
    "a number that is too large": '{"metadata": {"a": 1e999}}',
    "lists that nest deep": f'{{"metadata": {{"a": {nested(200)}}}}}',
    "lists that nest deeper than a call stack": f'{{"metadata": {{"a": {nested(900)}}}}}',
    "a time zone that is a folder": '{"options": {"timezone": "America"}}',
    "a time zone that is no file's name": f'{{"options": {{"timezone": "{"a" * 5000}"}}}}',
    "a window beyond all models": f'{{"options": {{"context_window": {"9" * 400}}}}}',
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_odd_json_is_invalid_input(database: OneDatabase, body: str) -> None:
    async with serving(database, ScriptedModel()) as server:
        answer = await server.http.post(
            "/v1/agents", content=body, headers={"Content-Type": "application/json"}
        )
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_input")


async def test_json_that_nests_beyond_the_parser_is_no_json(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        answer = await server.http.post(
            "/v1/agents",
            content=f'{{"metadata": {{"a": {nested(100_000)}}}}}',
            headers={"Content-Type": "application/json"},
        )
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")


async def test_odd_filters_places_and_times_are_invalid_input(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        url = f"/v1/agents/{agent}"

        async def statuses(method: str, path: str, *requests: dict[str, Any]) -> list[int]:
            return [
                (await server.http.request(method, url + path, **each)).status_code
                for each in requests
            ]

        filters = ['{"a": NaN}', '{"a": 1e999}', '{"a": ' + nested(200) + "}", nested(4000), "[]"]
        asked = [{"params": {"query": "x", "metadata": each}} for each in filters]
        for path in ("/archival", "/archival/search"):
            assert await statuses("GET", path, *asked) == [422] * len(filters)
        section = {"name": "new", "place": 10**30}
        assert await statuses("POST", "/working-context", {"json": section}) == [422]
        times = ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"]
        passages = [{"json": {"passages": [{"text": "x", "created_at": each}]}} for each in times]
        assert await statuses("POST", "/archival", *passages) == [422, 422]
        past = [
            {"json": {"messages": [{"role": "user", "text": "x", "created_at": each}]}}
            for each in times
        ]
        assert await statuses("POST", "/messages/import", *past) == [422, 422]


@pytest.mark.parametrize("moment", [0, 4102444800, 1.5, "4102444800", True])
async def test_a_time_that_is_a_number_is_refused(database: OneDatabase, moment: object) -> None:
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        passage = {"text": "x", "expires_at": moment}
        answer = await server.http.post(
            f"/v1/agents/{agent}/archival", json={"passages": [passage]}
        )
    assert answer.status_code == 422
    assert "passages.0.expires_at" in answer.json()["error"]["message"]


async def test_a_zone_of_most_of_a_day_is_one_wherever_a_time_is_taken(
    database: OneDatabase,
) -> None:
    west, east = "2026-02-07T03:14:06-20:49", "2026-02-08T20:52:06+20:49"
    same = "2026-02-08T00:03:06Z"
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        url = f"/v1/agents/{agent}"
        stored = await server.http.post(
            f"{url}/archival",
            json={"passages": [{"text": "x", "created_at": each} for each in (west, east)]},
        )
        shown = [each["created_at"] for each in stored.json()["items"]]
        dates = {"start_date": east, "end_date": west}
        listed = await server.get(f"{agent}/archival", **dates)
        recalled = await server.http.get(f"{url}/recall/search", params={"query": "x", **dates})
        imported = await server.http.post(
            f"{url}/messages/import",
            json={"messages": [{"role": "user", "text": "x", "created_at": west}]},
        )
        key = await server.http.post(
            "/v1/keys", json={"name": "a", "scopes": ["admin"], "expires_at": "2099" + west[4:]}
        )
    assert shown == [same, same]
    assert len(listed["items"]) == 2
    assert recalled.status_code == 200, recalled.text
    assert imported.status_code == 200, imported.text
    assert key.json()["expires_at"] == "2099" + same[4:]


async def test_times_next_to_the_ends_of_the_calendar_are_kept(database: OneDatabase) -> None:
    times = ["0001-01-02T00:00:00Z", "9999-12-30T00:00:00Z"]
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        stored = await server.http.post(
            f"/v1/agents/{agent}/archival",
            json={"passages": [{"text": "x", "created_at": each} for each in times]},
        )
        listed = await server.get(f"{agent}/archival")
    assert stored.status_code == 201
    assert [each["created_at"] for each in listed["items"]] == times
