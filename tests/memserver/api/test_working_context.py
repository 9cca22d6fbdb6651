"""An agent's working context over REST: its sections, their limits, their history, and undo."""

import asyncio
from typing import Any

import pytest

from memserver.testing.scripted import Call, ScriptedModel, say
from tests.support.server import OneDatabase, Server, serving

SECTIONS = [{"name": "persona", "text": "I am Sam."}, {"name": "human", "limit": 20}]


class Agent:
    """An agent's working context, spoken to over REST."""

    def __init__(self, server: Server, agent: str) -> None:
        self.server = server
        self.url = f"/v1/agents/{agent}/working-context"

    async def ask(self, method: str, path: str = "", status: int = 200, **body: Any) -> Any:
        answer = await self.server.http.request(method, self.url + path, json=body or None)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    async def refused(self, method: str, path: str = "", **body: Any) -> tuple[int, str, str]:
        answer = await self.server.http.request(method, self.url + path, json=body or None)
        error = answer.json()["error"]
        return answer.status_code, error["code"], error["message"]

    async def names(self) -> list[str]:
        return [section["name"] for section in (await self.ask("GET"))["sections"]]

    async def history(self, name: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = (await self.ask("GET", f"/{name}/history"))["items"]
        return items


async def made(server: Server, **fields: Any) -> tuple[str, Agent]:
    agent = await server.create_agent(**{"sections": SECTIONS, **fields})
    return agent, Agent(server, agent)


async def test_every_edit_is_in_the_history_with_who_made_it_and_where(
    database: OneDatabase,
) -> None:
    append = {"section": "human", "content": "Name: Ada", "request_heartbeat": True}
    model = ScriptedModel([say("Hello."), Call("working_context_append", append), say("Hi Ada.")])
    async with serving(database, model) as server:
        agent, context = await made(server)
        await server.say(agent, "Hello?")
        answer = await server.say(agent, "I am Ada.")
        await context.ask("PATCH", "/human", text="Name: Ada B.")
        newest, by_tool, first = await context.history("human")
    assert [edit["version"] for edit in (newest, by_tool, first)] == [3, 2, 1]
    assert [edit["text"] for edit in (newest, by_tool, first)] == ["Name: Ada B.", "Name: Ada", ""]
    assert [edit["actor"] for edit in (newest, by_tool, first)] == ["api", "tool", "api"]
    assert {edit["agent_id"] for edit in (newest, by_tool, first)} == {agent}
    assert by_tool["position"] == answer["messages"][0]["position"] == 2001
    assert (by_tool["turn"], newest["turn"], newest["position"]) == (2, None, None)


async def test_history_pages_stay_right_while_edits_arrive(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        _, context = await made(server)
        for number in range(5):
            await context.ask("PATCH", "/human", text=f"v{number}")
        newest = await context.ask("GET", "/human/history?limit=2")
        await context.ask("PATCH", "/human", text="later")
        older = await context.ask("GET", f"/human/history?limit=100&after={newest['next']}")
    assert [edit["version"] for edit in newest["items"] + older["items"]] == [6, 5, 4, 3, 2, 1]
    assert older["next"] is None


async def test_an_undo_is_an_edit_that_can_be_undone_and_any_version_comes_back(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel()) as server:
        _, context = await made(server)
        nothing = await context.refused("POST", "/human/undo")
        for text in ("one", "two"):
            await context.ask("PATCH", "/human", text=text)
        undone = await context.ask("POST", "/human/undo")
        redone = await context.ask("POST", "/human/undo", expected_version=4)
        restored = await context.ask("POST", "/human/restore", version=1)
        unknown = await context.refused("POST", "/human/restore", version=99)
        history = await context.history("human")
    assert nothing[:2] == (409, "conflict")
    assert [section["text"] for section in (undone, redone, restored)] == ["one", "two", ""]
    assert [section["version"] for section in (undone, redone, restored)] == [4, 5, 6]
    assert unknown == (404, "not_found", "The section has no version 99.")
    restores = {edit["version"]: edit["restores"] for edit in history}
    assert restores == {1: None, 2: None, 3: None, 4: 2, 5: 3, 6: 1}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", "/human", {"text": "mine"}),
        ("POST", "/human/undo", {}),
        ("POST", "/human/restore", {"version": 1}),
    ],
)
async def test_who_saw_an_older_text_changes_nothing(
    database: OneDatabase, method: str, path: str, body: dict[str, Any]
) -> None:
    async with serving(database, ScriptedModel()) as server:
        _, context = await made(server)
        seen = (await context.ask("PATCH", "/human", text="one"))["version"]
        await context.ask("PATCH", "/human", text="two")
        refused = await context.refused(method, path, **body, expected_version=seen)
        now = await context.ask("GET", "/human")
        await context.ask(method, path, **body, expected_version=now["version"])
    assert refused == (409, "version_conflict", "Section 'human' is at version 3, not 2.")
    assert (now["text"], now["version"]) == ("two", 3)


async def test_of_many_editors_who_saw_one_version_one_wins(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        _, context = await made(server)
        edits = [
            server.http.patch(f"{context.url}/human", json={"text": f"{n}", "expected_version": 1})
            for n in range(8)
        ]
        answers = await asyncio.gather(*edits)
        history = await context.history("human")
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 7
    assert [edit["version"] for edit in history] == [2, 1]


async def test_a_text_that_stays_as_it_is_makes_no_version(database: OneDatabase) -> None:
    same = {"section": "persona", "old_content": "Sam", "new_content": "Sam"}
    model = ScriptedModel([Call("working_context_replace", same), say("Hi.")])
    async with serving(database, model) as server:
        agent, context = await made(server)
        edited = "SELECT memory_edited_at FROM agent_state"
        before = server.rows(edited)
        answer = await server.say(agent, "Hello")
        await context.ask("PATCH", "/persona", text="I am Sam.")
        await context.ask("POST", "/persona/restore", version=1)
        assert server.rows(edited) == before
        assert len(await context.history("persona")) == 1
    assert answer["messages"][0]["tool_call"]["state"] == "done"


FAMILY = "👩\u200d👩\u200d👧"  # one to a reader, five code points
LONG = {"text": "x" * 21}


@pytest.mark.parametrize(
    ("method", "path", "body", "figures"),
    [
        ("PATCH", "/human", LONG, ("20", "21")),
        ("PATCH", "/human", {"text": FAMILY * 5}, ("20", "25")),
        ("PATCH", "/human", {"text": "e\u0301" * 11}, ("20", "22")),
        ("PATCH", "/human", {"limit": 8}, ("8", "9")),
        ("PATCH", "/human", {"limit": 8, "text": "x" * 10}, ("8", "10")),
        ("POST", "/human/restore", {"version": 2}, ("20", "30")),
        ("POST", "", {"name": "new", "text": "xy", "limit": 1}, ("1", "2")),
    ],
)
async def test_a_limit_holds_on_every_path_and_nothing_is_lost(
    database: OneDatabase, method: str, path: str, body: dict[str, Any], figures: tuple[str, str]
) -> None:
    append = {"section": "human", "content": ", 1815", "request_heartbeat": True}
    model = ScriptedModel([Call("working_context_append", append), say("ok")])
    async with serving(database, model) as server:
        agent, context = await made(server)
        await context.ask("PATCH", "/human", text="x" * 30, limit=30)
        await context.ask("PATCH", "/human", text="Name: Ada", limit=20)
        before = await context.ask("GET")
        status, code, message = await context.refused(method, path, **body)
        after = await context.ask("GET")
        answer = await server.say(agent, "hello")
    assert (status, code) == (422, "invalid_input")
    assert all(figure in message for figure in figures)
    assert after == before
    assert answer["messages"][0]["tool_call"]["state"] == "done"


async def test_a_tool_over_the_limit_fails_with_the_figures_and_the_turn_continues(
    database: OneDatabase,
) -> None:
    more = {"section": "human", "content": FAMILY * 4}
    longer = {"section": "persona", "old_content": "Sam", "new_content": "S" * 100}
    model = ScriptedModel(
        [
            Call("working_context_append", more),
            Call("working_context_append", {**more, "content": "x"}),
            Call("working_context_replace", longer),
            say("ok"),
        ]
    )
    sections = [{**section, "limit": 20} for section in SECTIONS]
    async with serving(database, model) as server:
        agent, context = await made(server, sections=sections)
        answer = await server.say(agent, "hello")
        texts = [section["text"] for section in (await context.ask("GET"))["sections"]]
    calls = [message["tool_call"] for message in answer["messages"]]
    assert [call["state"] for call in calls] == ["done", "failed", "failed", "done"]
    assert "at most 20 characters; with this edit it would have 22" in calls[1]["result"]
    assert "would have 106" in calls[2]["result"]
    assert texts == ["I am Sam.", FAMILY * 4]


async def test_a_lower_limit_and_a_shorter_text_go_together(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        _, context = await made(server)
        await context.ask("PATCH", "/human", text="x" * 20)
        both = await context.ask("PATCH", "/human", text="xy", limit=2)
        raised = await context.ask("PATCH", "/human", limit=20)
        undone = await context.ask("POST", "/human/undo")
    assert (both["text"], both["limit"], both["version"]) == ("xy", 2, 3)
    assert (raised["limit"], raised["version"]) == (20, 3)
    assert undone["text"] == "x" * 20


async def test_sections_are_added_renamed_moved_and_removed(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel([say("hi")] * 2)) as server:
        agent, context = await made(server)
        added = await context.ask(
            "POST", status=201, name="task", text="Help.", description="What to do.", place=1
        )
        last = await context.ask("POST", status=201, name="mood")
        assert await context.names() == ["task", "persona", "human", "mood"]
        await context.ask("PATCH", "/mood", place=2)
        await context.ask("PATCH", "/task", name="plan", place=99)
        assert await context.names() == ["mood", "persona", "human", "plan"]
        taken = await context.refused("PATCH", "/plan", name="human")
        again = await context.refused("POST", name="human")
        await server.say(agent, "hello")
        prompt = server.model.last_prompt[0].text
        tools = server.model.seen[-1].tools
        await context.ask("DELETE", "/persona", status=204)
        await server.say(agent, "hello again")
        gone = await context.refused("GET", "/persona")
    assert (added["text"], added["limit"], last["text"]) == ("Help.", 2000, "")
    assert taken[:2] == again[:2] == (409, "conflict")
    assert [prompt.index(f"<{name} ") for name in ("mood", "persona", "human", "plan")] == sorted(
        prompt.index(f"<{name} ") for name in ("mood", "persona", "human", "plan")
    )
    assert tools[1].parameters["properties"]["section"]["enum"] == [
        "mood",
        "persona",
        "human",
        "plan",
    ]
    assert "<persona" not in server.model.last_prompt[0].text
    assert gone[2] == "The working context has no section 'persona'; there are: mood, human, plan."


async def test_an_agent_without_sections_is_usable_and_may_have_fifty(
    database: OneDatabase,
) -> None:
    append = {"section": "human", "content": "x", "request_heartbeat": True}
    model = ScriptedModel([Call("working_context_append", append), say("ok")])
    async with serving(database, model) as server:
        agent, context = await made(server)
        for name in ("human", "persona"):
            await context.ask("DELETE", f"/{name}", status=204)
        answer = await server.say(agent, "hello")
        for number in range(50):
            await context.ask("POST", status=201, name=f"s{number}")
        refused = await context.refused("POST", name="one_more")
    assert "there are: none" in answer["messages"][0]["tool_call"]["result"]
    assert answer["text"] == "ok"
    assert refused[:2] == (409, "conflict")
