"""Every list of the API goes both ways, page by page, whatever it lists."""

from pathlib import Path
from typing import Any

from tests.memserver.api.furnished import furnish, model, names_for
from tests.memserver.api.openapi import lists
from tests.memserver.api.walk import operations
from tests.support.mcp_demo import HERE
from tests.support.server import OneDatabase, serving

PAGES = 100
SEVERAL = {
    "GET /v1/agents",
    "GET /v1/tenants",
    "GET /v1/tools",
    "GET /v1/agents/{agent}/tools",
    "GET /v1/agents/{agent}/collections",
    "GET /v1/agents/{agent}/messages",
    "GET /v1/agents/{agent}/working-context/{section}/history",
    "GET /v1/sections/{section_id}/history",
    "GET /v1/calls/waiting",
    "GET /v1/collections/{collection}/passages",
    "GET /v1/keys",
}
"""Lists that have more than one item here, so that their order shows."""


async def test_every_list_goes_both_ways_page_by_page(
    database: OneDatabase, mcp_url: str, tmp_path: Path
) -> None:
    for run in ("first", "second"):
        (tmp_path / run).mkdir()
        (tmp_path / run / "manifest.json").touch()
    async with serving(database, model(), tool_networks=HERE, results_dir=tmp_path) as server:
        await server.operate()
        own, ids = await furnish(server, "mine", mcp_url)
        agent = f"/v1/agents/{ids['agent']}"
        shared = {"section_id": ids["section_id"]}
        await server.http.put(f"{agent}/working-context/shared", json=shared, headers=own)
        await server.http.post(f"{agent}/documents", content=b"A text.", headers=own)
        operator = dict(server.http.headers)
        document = (await server.http.get("/openapi.json")).json()
        known = {each.name: each for each in operations(document)}

        async def read(name: str, limit: int, order: str | None) -> list[Any]:
            request = known[name].request(names_for(known[name], ids))
            request["params"] |= {"limit": limit} | ({"order": order} if order else {})
            headers = operator if {"tenants", "reports"} & {*name.split("/")} else own
            found: list[Any] = []
            for _ in range(PAGES):
                answer = await server.http.request(**request, headers=headers)
                assert answer.status_code == 200, f"{name}: {answer.text}"
                page = answer.json()
                found += [{**each, "last_used_at": None} for each in page["items"]]
                if page["next"] is None:
                    return found
                assert len(page["items"]) == limit
                request["params"]["after"] = page["next"]
            raise AssertionError(f"{name} has no end")

        several = set()
        for name, spec, _ in lists(document):
            whole = await read(name, 100, "asc")
            assert whole, f"{name}: there has to be one"
            assert await read(name, 1, "asc") == whole, name
            assert await read(name, 1, "desc") == whole[::-1], name
            [default] = [p["schema"]["default"] for p in spec["parameters"] if p["name"] == "order"]
            assert await read(name, 2, None) == (whole if default == "asc" else whole[::-1]), name
            if len(whole) > 1:
                several.add(name)
        assert several >= SEVERAL


async def test_a_cursor_that_an_agents_list_has_no_more_is_reported(
    database: OneDatabase,
) -> None:
    async with serving(database, model()) as server:
        agent = await server.create_agent()
        answer = await server.http.get(f"/v1/agents/{agent}/tools", params={"after": "gone"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_input")
