"""The REST resources as a client sees them."""

from typing import Any

import jsonschema
import pytest

from memserver.testing.hashing_embedder import HashingEmbedder
from memserver.testing.scripted import Call, ScriptedModel, say
from tests.support.server import OneDatabase, serving


async def test_an_agent_is_created_listed_changed_and_deleted(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        first = await server.create_agent(name="first", metadata={"team": "a"})
        second = await server.create_agent(name="second")
        page = await server.get("", limit=1)
        rest = await server.get("", limit=1, after=page["next"])
        named = await server.get("", name="second")
        changed = await server.http.patch(
            f"/v1/agents/{first}", json={"name": "renamed", "options": {"max_steps": 3}}
        )
        gone = await server.http.delete(f"/v1/agents/{second}")
        missing = await server.http.get(f"/v1/agents/{second}")
        left = server.rows("SELECT count(*) FROM sections")
    assert [item["name"] for item in page["items"]] == ["first"]
    assert [item["name"] for item in rest["items"]] == ["second"]
    assert rest["next"] is None
    assert [item["id"] for item in named["items"]] == [second]
    assert changed.json()["name"] == "renamed"
    assert changed.json()["options"]["max_steps"] == 3
    assert changed.json()["metadata"] == {"team": "a"}
    assert gone.status_code == 204
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "not_found"
    assert left == [(2,)]


async def test_a_deleted_agent_takes_its_whole_memory_along(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel([say("hi")])) as server:
        agent = await server.create_agent()
        await server.say(agent, "hello")
        await server.http.post(f"/v1/agents/{agent}/archival", json={"passages": [{"text": "x"}]})
        assert (await server.http.delete(f"/v1/agents/{agent}")).status_code == 204
        tables = server.rows(
            """SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
               WHERE c.relkind = 'r' AND a.attname = 'tenant'"""
        )
        left = {name: server.rows(f"SELECT count(*) FROM {name}")[0][0] for (name,) in tables}
    assert left.pop("tenants") == 1
    assert set(left.values()) == {0}, left


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "names"),
    [
        ("agents", {"nam": "x"}, 422, "invalid_input", "nam"),
        ("agents", {"name": ""}, 422, "invalid_input", "name"),
        ("agents", {"options": {"max_steps": 0}}, 422, "invalid_input", "options.max_steps"),
        ("agents", {"options": {"timezone": "Mars"}}, 422, "invalid_input", "options.timezone"),
        (
            "agents",
            {"sections": [{"name": "a", "text": "abc", "limit": 2}]},
            422,
            "invalid_input",
            "sections.a.text",
        ),
        ("agents/{agent}/messages", {}, 422, "invalid_input", "text"),
        ("agents/{agent}/messages", {"text": 7}, 422, "invalid_input", "text"),
        ("agents/{agent}/messages", {"text": "  "}, 422, "invalid_input", "empty"),
        ("agents/{agent}/messages", [], 422, "invalid_input", "body"),
        ("agents/{agent}/messages/import", {"messages": []}, 422, "invalid_input", "messages"),
        (
            "agents/{agent}/messages/import",
            {"messages": [{"role": "robot", "text": "x"}]},
            422,
            "invalid_input",
            "messages.0.role",
        ),
        ("agents/{agent}/archival", {"passages": [{"text": " "}]}, 422, "invalid_input", "empty"),
        (
            "agents/00000000-0000-7000-8000-000000000000/messages",
            {"text": "x"},
            404,
            "not_found",
            "no agent",
        ),
        ("agents/nonsense/messages", {"text": "x"}, 404, "not_found", "no agent 'nonsense'"),
        ("nowhere", {}, 404, "not_found", "There is no POST /v1/nowhere."),
    ],
)
async def test_bad_requests_get_a_clear_error_that_names_the_field(
    database: OneDatabase, path: str, body: Any, status: int, code: str, names: str
) -> None:
    async with serving(database, ScriptedModel([say("hi")])) as server:
        agent = await server.create_agent()
        answer = await server.http.post(f"/v1/{path.format(agent=agent)}", json=body)
        usable = await server.say(agent, "hello")
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["code"] == code
    assert names in error["message"]
    assert set(error) == {"code", "message", "hint"}
    assert usable["text"] == "hi"


async def test_broken_json_is_no_server_error(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        answer = await server.http.post(
            "/v1/agents", content=b"{", headers={"Content-Type": "application/json"}
        )
        latin = await server.http.post(
            "/v1/agents", content=b'{"name": "\xff"}', headers={"Content-Type": "application/json"}
        )
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")
    assert latin.status_code in (400, 422)


async def test_a_section_edit_over_the_limit_is_refused_with_the_figures(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent(sections=[{"name": "human", "limit": 10}])
        url = f"/v1/agents/{agent}/working-context/human"
        refused = await server.http.patch(url, json={"text": "x" * 11})
        larger = await server.http.patch(url, json={"text": "x" * 11, "limit": 20})
        smaller = await server.http.patch(url, json={"limit": 5})
        unknown = await server.http.patch(url.replace("human", "alien"), json={"text": "x"})
        history = server.rows("SELECT version, content, actor FROM section_edits ORDER BY version")
    assert refused.status_code == 422
    assert "at most 10 characters" in refused.json()["error"]["message"]
    assert "11" in refused.json()["error"]["message"]
    assert larger.json()["limit"] == 20
    assert smaller.status_code == 422
    assert unknown.status_code == 404
    assert "there are: human" in unknown.json()["error"]["message"]
    assert history == [(1, "", "api"), (2, "x" * 11, "api")]


async def test_recall_search_takes_text_case_dates_and_pages(database: OneDatabase) -> None:
    past = [
        ("2026-02-06T23:59:59+00:00", "Off to bed."),
        ("2026-02-07T00:00:00+00:00", "It is my Birthday!"),
        ("2026-02-07T23:59:59.999+00:00", "100% a birthday_party \\o/"),
        ("2026-02-08T00:00:00+00:00", "Morning."),
    ]
    messages = [{"role": "user", "text": text, "created_at": at} for at, text in past]
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        url = f"/v1/agents/{agent}/messages/import"
        assert (await server.http.post(url, json={"messages": messages})).status_code == 200

        async def found(**query: Any) -> list[str]:
            result = await server.get(f"{agent}/recall/search", mode="exact", **query)
            return [item["text"] for item in result["items"]]

        assert await found(query="birthday") == ["100% a birthday_party \\o/"]
        assert await found(query="birthday", ignore_case=True) == [
            "100% a birthday_party \\o/",
            "It is my Birthday!",
        ]
        assert await found(query="0%") == ["100% a birthday_party \\o/"]
        assert await found(query="y_p") == ["100% a birthday_party \\o/"]
        assert await found(query="\\o") == ["100% a birthday_party \\o/"]
        assert await found(query="b_r") == []
        assert await found(start_date="2026-02-07", end_date="2026-02-07") == [
            "It is my Birthday!",
            "100% a birthday_party \\o/",
        ]
        assert await found(end_date="2026-02-06") == ["Off to bed."]
        for page in (0, -1, 2, 9999, 2**53):
            empty = await server.get(
                f"{agent}/recall/search", query="birthday", mode="exact", page=page
            )
            assert (empty["items"], empty["total"]) == ([], 1)
        bad = await server.http.get(
            f"/v1/agents/{agent}/recall/search", params={"start_date": "soon"}
        )
    assert bad.status_code == 422
    assert "'soon' is not a date" in bad.json()["error"]["message"]


async def test_passages_are_inserted_searched_listed_and_deleted(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        empty = await server.get(f"{agent}/archival/search", query="anything")
        new = [{"text": f"note {number} about tea", "tags": ["t"]} for number in range(12)]
        new.append({"text": "the cello is called Hugo", "metadata": {"source": "diary"}})
        url = f"/v1/agents/{agent}/archival"
        stored = (await server.http.post(url, json={"passages": new})).json()["items"]
        found = await server.get(f"{agent}/archival/search", query="what is the cello called")
        page = await server.get(f"{agent}/archival/search", query="tea", page=2)
        listed = await server.get(f"{agent}/archival", limit=10)
        rest = await server.get(f"{agent}/archival", limit=10, after=listed["next"])
        gone = await server.http.delete(f"{url}/{stored[-1]['id']}")
        again = await server.http.delete(f"{url}/{stored[-1]['id']}")
        after = await server.get(f"{agent}/archival/search", query="cello")
    assert (empty["items"], empty["total"]) == ([], 0)
    assert found["items"][0]["text"] == "the cello is called Hugo"
    assert found["items"][0]["metadata"] == {"source": "diary"}
    assert found["items"][0]["score"] > found["items"][1]["score"]
    assert (found["total"], found["pages"]) == (13, 2)
    assert len(page["items"]) == 3
    assert [item["text"] for item in listed["items"] + rest["items"]] == [p["text"] for p in new]
    assert (gone.status_code, again.status_code) == (204, 404)
    assert after["total"] == 12


@pytest.mark.parametrize(
    "other", [HashingEmbedder(384, model="another"), HashingEmbedder(8, model="hashing")]
)
async def test_vectors_of_two_models_never_meet(
    database: OneDatabase, other: HashingEmbedder
) -> None:
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        url = f"/v1/agents/{agent}/archival"
        new = {"passages": [{"text": "a note"}]}
        assert (await server.http.post(url, json=new)).status_code == 201
    search = Call("archival_memory_search", {"query": "note"})
    model = ScriptedModel([search, say("I can't look.")])
    async with serving(database, model, embedder=other) as server:
        refused = await server.http.post(url, json=new)
        searched = await server.http.get(f"{url}/search", params={"query": "note"})
        answer = await server.say(agent, "Look it up!")
        fresh = await server.create_agent()
        made = await server.http.post(f"/v1/agents/{fresh}/archival", json=new)
    for failed in (refused, searched):
        assert (failed.status_code, failed.json()["error"]["code"]) == (503, "embedding_error")
        assert "MEMSERVER_EMBEDDING_MODEL" in failed.json()["error"]["hint"]
    assert answer["messages"][0]["tool_call"]["state"] == "failed"
    assert answer["text"] == "I can't look."
    assert made.status_code == 201


async def test_the_stream_has_the_turn_in_typed_events(database: OneDatabase) -> None:
    model = ScriptedModel([say("Hello there, Ada!", thought="I greet her.")])
    async with serving(database, model) as server:
        agent = await server.create_agent()
        events = await server.events(agent, "Hi")
    kinds = [kind for kind, _ in events]
    assert [kind for kind in kinds if kind != "message_delta"] == [
        "turn_started",
        "thought",
        "tool_call",
        "tool_result",
        "message",
        "usage",
        "turn_ended",
    ]
    deltas = [data["text"] for kind, data in events if kind == "message_delta"]
    assert len(deltas) > 1
    assert "".join(deltas) == "Hello there, Ada!"
    assert events[-1][1]["stop_reason"] == "message_sent"
    assert dict(events)["message"]["text"] == "Hello there, Ada!"


async def test_a_client_that_comes_back_reads_on_after_the_last_event_it_saw(
    database: OneDatabase,
) -> None:
    append = {"section": "human", "content": "Name: Ada", "request_heartbeat": True}
    script = [Call("working_context_append", append), say("Hello Ada!", thought="I greet her.")]
    async with serving(database, ScriptedModel(script)) as server:
        agent = await server.create_agent()
        await server.say(agent, "Hi, I am Ada.")
        url = f"/v1/agents/{agent}/turns/1/events"
        whole = (await server.http.get(url)).text
        rest = (await server.http.get(url, headers={"Last-Event-ID": "1001"})).text
        end = (await server.http.get(url, headers={"Last-Event-ID": "1002"})).text
    assert [line for line in whole.split("\n") if line.startswith("id: ")] == [
        "id: 1001",
        "id: 1002",
    ]
    kinds = [line.removeprefix("event: ") for line in rest.split("\n") if "event: " in line]
    assert kinds == ["thought", "tool_call", "tool_result", "message", "usage", "turn_ended"]
    assert whole.endswith(rest)
    assert rest.endswith(end)
    assert "event: message" not in end


async def test_a_stream_of_a_failed_turn_ends_with_its_error(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel([""] * 3)) as server:
        agent = await server.create_agent()
        events = await server.events(agent, "Hi")
    assert [kind for kind, _ in events][-3:] == ["usage", "error", "turn_ended"]
    assert dict(events)["error"]["error"]["code"] == "model_protocol_violation"


async def test_history_pages_stay_right_while_messages_arrive(database: OneDatabase) -> None:
    model = ScriptedModel(lambda _prompt, _tools: say("ok"))
    async with serving(database, model) as server:
        agent = await server.create_agent()
        for number in range(4):
            await server.say(agent, f"m{number}")
        newest = await server.get(f"{agent}/messages", limit=3)
        await server.say(agent, "m4")
        older = await server.get(f"{agent}/messages", limit=100, after=newest["next"])
        newest_seen = newest["items"][0]["position"]
        newer = await server.get(f"{agent}/messages", after=newest_seen, order="asc")
    assert [item["text"] for item in newest["items"]] == ["ok", "m3", "ok"]
    assert [item["text"] for item in older["items"]] == ["m2", "ok", "m1", "ok", "m0"]
    assert [item["text"] for item in newer["items"]] == ["m4", "ok"]


async def test_every_answer_keeps_to_the_openapi_document(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel([say("hi")])) as server:
        document = (await server.http.get("/openapi.json")).json()
        agent = await server.create_agent()
        answer = await server.say(agent, "hello")
        context = await server.get(f"{agent}/context")
    for name, value in (("Answer", answer), ("ContextView", context)):
        schema = {**document["components"]["schemas"][name], "components": document["components"]}
        jsonschema.validate(value, schema)
    posted = document["paths"]["/v1/agents/{agent}/messages"]["post"]
    assert {"200", "404", "409", "422", "502", "503", "504"} <= set(posted["responses"])
