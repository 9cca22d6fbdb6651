"""What all routes have in common: HEAD, OPTIONS, and that nothing is taken that would have no effect."""

import json
from typing import Any

import pytest

from memserver.testing.scripted import ScriptedModel, say
from tests.memserver.api.openapi import resolved
from tests.memserver.api.walk import Naming, operations
from tests.support.server import OneDatabase, serving

OPENAI = "OpenAI's API"


async def test_an_unknown_parameter_is_refused_on_every_route_of_ours(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel()) as server:
        document = server.app.openapi()
        walked = list(operations(document))
        for operation in walked:
            request = operation.request(Naming())
            request["params"] = {**request["params"], "sortt": "name"}
            answer = await server.http.request(**request)
            if OPENAI in operation.spec["tags"]:
                assert "sortt" not in answer.text, operation.name
                continue
            assert answer.status_code == 422, (operation.name, answer.text)
            error = answer.json()["error"]
            assert error["code"] == "invalid_input", operation.name
            assert error["message"] == "sortt: there is no such parameter.", operation.name
            known = operation.queries
            assert all(each in error["hint"] for each in known), operation.name
    assert len(walked) > 60


async def test_an_unknown_field_of_a_body_is_refused_on_every_route_of_ours(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        refused = 0
        for operation in operations(server.app.openapi()):
            request = operation.request(Naming())
            if OPENAI in operation.spec["tags"] or not isinstance(request.get("json"), dict):
                continue
            request["json"] = {**request["json"], "nmae": "x"}
            request["url"] = operation.path.format_map({"agent": agent, **Naming()} | Given(agent))
            answer = await server.http.request(**request)
            assert answer.status_code == 422, (operation.name, answer.text)
            assert "nmae" in answer.json()["error"]["message"], (operation.name, answer.text)
            refused += 1
    assert refused > 20


class Given(dict[str, str]):
    """Every agent is this one; all else is made up."""

    def __init__(self, agent: str) -> None:
        super().__init__(agent=agent, agent_id=agent)

    def __or__(self, other: Any) -> Any:
        return self

    def __ror__(self, other: Any) -> "Given":
        return self

    def __missing__(self, name: str) -> str:
        return Naming()[name]


@pytest.mark.parametrize("field", ["tags", "name", "metadata", "Fle"])
async def test_a_field_beside_the_file_of_a_form_is_refused(
    database: OneDatabase, field: str
) -> None:
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        answer = await server.http.post(
            f"/v1/agents/{agent}/documents",
            files={"file": ("a.txt", b"A text.")},
            data={field: "x"},
        )
        left = (await server.get(f"{agent}/documents"))["items"]
    assert (answer.status_code, answer.json()["error"]["code"], left) == (422, "invalid_input", [])
    assert answer.json()["error"]["message"].startswith(f"{field}: ")


async def test_head_has_what_get_has_but_no_body_and_changes_nothing(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel([say("Hello.")])) as server:
        agent = await server.create_agent()
        await server.say(agent, "Hi")
        events = f"/v1/agents/{agent}/turns/1/events"
        for path in (
            "/",
            "/docs",
            "/openapi.json",
            "/v1/health",
            "/v1/agents",
            "/v1/models",
            events,
        ):
            got, head = await server.http.get(path), await server.http.head(path)
            assert (head.status_code, head.content) == (200, b""), path
            assert got.headers.pop("X-Request-Id") != head.headers.pop("X-Request-Id")
            assert head.headers == got.headers, path
        assert (await server.http.head("/v1/nothing")).status_code == 404
        assert (await server.http.head(f"/v1/agents/{agent}/messages/search")).status_code == 422
        await server.operate()
        server.http.headers.pop("Authorization")
        assert (await server.http.head("/v1/agents")).status_code == 401


async def test_options_and_a_wrong_method_name_all_that_a_path_takes(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        await server.operate()
        key = dict(server.http.headers)
        server.http.headers.pop("Authorization")
        for path, item in server.app.openapi()["paths"].items():
            asked = path.replace("{", "").replace("}", "")
            answer = await server.http.options(asked)
            wanted = {each.upper() for each in item} | {"OPTIONS"}
            wanted |= {"HEAD"} if "GET" in wanted else set()
            allowed = set(answer.headers["Allow"].split(", "))
            assert answer.status_code == 204, path
            assert allowed >= wanted, path
            wrong = await server.http.request("PROPFIND", asked, headers=key)
            if wrong.status_code == 405:
                assert set(wrong.headers["Allow"].split(", ")) == allowed, path
        assert (await server.http.options("/v1/nothing", headers=key)).status_code == 404
        assert json.loads((await server.http.options("/v1/nothing")).text)["error"]["code"]


async def test_a_change_takes_null_where_the_document_says_so_and_nowhere_else(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel()) as server:
        document = server.app.openapi()
        seen = 0
        for operation in operations(document):
            if operation.method != "patch":
                continue
            schema = operation.spec["requestBody"]["content"]["application/json"]["schema"]
            schema = resolved(schema, document)
            if "text" in schema.get("required", ()):
                continue
            for field, about in schema["properties"].items():
                kinds = about.get("anyOf", [about])
                answer = await server.http.patch(
                    operation.path.format_map(Naming()), json={field: None}
                )
                refused = answer.status_code == 422
                assert refused != ({"type": "null"} in kinds), (operation.name, field, answer.text)
                seen += 1
    assert seen > 15
