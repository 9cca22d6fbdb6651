"""What errors say to a person who is new to the API."""

import pytest

from memserver.llm.reply_parser import RawReply
from memserver.testing.scripted import ScriptedModel, say
from tests.memserver.api.furnished import furnish, model, names_for, request_of
from tests.memserver.api.walk import NO_ID, operations
from tests.support.mcp_demo import HERE
from tests.support.server import OneDatabase, serving

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize("sent_as", [None, "text/plain", "application/x-www-form-urlencoded"])
async def test_a_forgotten_content_type_is_named(
    database: OneDatabase, sent_as: str | None
) -> None:
    async with serving(database, ScriptedModel()) as server:
        answer = await server.http.post(
            "/v1/agents",
            content=b'{"name": "sam"}',
            headers={} if sent_as is None else {"Content-Type": sent_as},
        )
    assert answer.status_code == 415
    assert answer.json()["error"] == {
        "code": "unsupported_media_type",
        "message": f"The body must be JSON, but was sent as {sent_as or 'nothing in particular'}.",
        "hint": "Send the header Content-Type: application/json.",
    }


async def test_json_of_the_wrong_kind_is_not_taken_for_a_wrong_content_type(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel()) as server:
        lists = await server.http.post("/v1/agents", json=[])
        field = await server.http.post("/v1/agents", json={"nam": "sam"})
        nested = await server.http.post("/v1/agents", json={"sections": [{"nam": "x"}]})
        query = await server.http.get("/v1/agents", params={"after": "sam"})
    hint = "The body is a JSON object; its fields are name, model, system_prompt, sections, options, metadata, language."
    assert lists.json()["error"]["hint"] == field.json()["error"]["hint"] == hint
    assert nested.json()["error"]["hint"] == "/docs describes POST /v1/agents."
    assert query.json()["error"]["hint"] == "/docs describes GET /v1/agents."


@pytest.mark.parametrize("name", ["0198f1c2-7a3b-7c4d-8e5f-0123456789ab", "deadbeef" * 4])
async def test_what_could_be_an_id_is_no_name(database: OneDatabase, name: str) -> None:
    """A path takes either, so that a name of this form would be somebody's id or lead nowhere."""
    async with serving(database, ScriptedModel()) as server:
        await server.create_agent(name="sam")
        for kind in ("agents", "collections", "agents/sam/fork"):
            refused = await server.http.post(f"/v1/{kind}", json={"name": name})
            assert refused.status_code == 422
            assert "can't have the form of an id" in refused.json()["error"]["message"]
        renamed = await server.http.patch("/v1/agents/sam", json={"name": name})
    assert renamed.status_code == 422


async def test_a_slash_at_the_end_changes_nothing(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel([say("hi")])) as server:
        made = await server.http.post("/v1/agents/", json={"name": "sam"})
        said = await server.http.post("/v1/agents/sam/messages/", json={"text": "hello"})
        listed = await server.http.get("/v1/agents/")
        await server.operate()
        health = await server.http.get("/v1/health/", headers={"Authorization": ""})
        docs = await server.http.get("/docs/", headers={"Authorization": ""})
    assert (made.status_code, said.json()["text"]) == (201, "hi")
    assert [each["name"] for each in listed.json()["items"]] == ["sam"]
    assert (health.status_code, docs.status_code) == (200, 200)


async def test_a_path_that_is_none_is_named_with_what_to_do(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        await server.create_agent(name="a/b")
        path = await server.http.get("/v1/agentz")
        method = await server.http.put("/v1/agents")
        slash = await server.http.get("/v1/agents/a%2Fb")
    assert path.json()["error"] == {
        "code": "not_found",
        "message": "There is no GET /v1/agentz.",
        "hint": "/docs lists all routes; those of the API begin with /v1.",
    }
    assert method.json()["error"]["hint"] == "This path takes GET, POST, HEAD, OPTIONS."
    assert (method.status_code, method.json()["error"]["code"]) == (405, "method_not_allowed")
    assert method.json()["error"]["message"] == "There is no PUT /v1/agents."
    assert (
        slash.json()["error"]["hint"]
        == "What has a slash in its name is named by its id in a path."
    )


async def test_whatever_is_not_found_says_what_to_do(database: OneDatabase, mcp_url: str) -> None:
    async with serving(database, model(), tool_networks=HERE) as server:
        await server.operate()
        mine, ids = await furnish(server, "mine", mcp_url, run_jobs=False)
        document = (await server.http.get("/openapi.json")).json()
        for operation in operations(document):
            if not operation.needs_key or not operation.parameters:
                continue
            *_, last = operation.parameters
            missing = {"turn": "999", "name": "nothing", "tenant": "nobody"}.get(last, NO_ID)
            names = names_for(operation, ids) | {last: missing}
            answer = await server.http.request(**request_of(operation, names), headers=mine)
            if answer.status_code == 404 and "hint" in answer.json()["error"]:
                assert answer.json()["error"]["hint"], (operation.name, answer.text)


async def test_a_model_that_breaks_the_protocol_is_explained_to_the_caller_and_not_scolded(
    database: OneDatabase,
) -> None:
    """What the model reads after a wrong reply speaks to the model; a person has to do something else."""
    chatter = RawReply(content='{"tool": "help"} I am  happy to help, ' + "and so on " * 40)
    async with serving(database, ScriptedModel([*[chatter] * 3, say("hi")])) as server:
        agent = await server.create_agent()
        failed = await server.http.post(f"/v1/agents/{agent}/messages", json={"text": "hello"})
        notes = [each["text"] for each in (await server.get(f"{agent}/messages"))["items"]]
        usable = await server.say(agent, "again")
    error = failed.json()["error"]
    assert (failed.status_code, error["code"]) == (502, "model_protocol_violation")
    assert error["message"].startswith(
        "The model doesn't follow the protocol: 3 of its replies were no valid tool call. "
        'The last one: {"tool": "help"} I am happy to help, and so on'
    )
    assert len(error["message"]) < 330
    assert "Call one of" not in error["message"]
    assert "memserver doctor" in error["hint"]
    assert "MEMSERVER_LLM_MODE" in error["hint"]
    assert any("Call one of" in note for note in notes)
    assert usable["text"] == "hi"
