"""Sections that several agents have: everybody sees every write at the next step, and none is lost."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from memserver.testing.scripted import Call, Held, ScriptedModel, Step, say
from tests.support.server import NamedModels, OneDatabase, Server, serving

UNUSED = ScriptedModel()


def append(content: str, section: str = "team") -> Call:
    return Call(
        "working_context_append",
        {"section": section, "content": content, "request_heartbeat": True},
    )


def replace(old: str, new: str) -> Call:
    return Call(
        "working_context_replace",
        {"section": "team", "old_content": old, "new_content": new, "request_heartbeat": True},
    )


async def ask(server: Server, method: str, path: str, status: int = 200, **body: Any) -> Any:
    answer = await server.http.request(method, f"/v1/{path}", json=body or None)
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


async def shared(server: Server, **fields: Any) -> str:
    section = await ask(server, "POST", "sections", 201, **{"name": "team", **fields})
    return str(section["id"])


async def member(server: Server, name: str, section: str, **how: Any) -> str:
    """An agent with a model of its own name, that has the section as `team`."""
    agent = await server.create_agent(name=name, model=name)
    await attach(server, agent, section, **how)
    return agent


async def attach(server: Server, agent: str, section: str, **how: Any) -> Any:
    url = f"agents/{agent}/working-context/team"
    return await ask(server, "PUT", url, section_id=section, **how)


def team(**scripts: list[Step]) -> dict[str, Any]:
    """Models by the names of their agents, as a setting of the server."""
    models = {name: ScriptedModel(script) for name, script in scripts.items()}
    return {"models": NamedModels({None: UNUSED, **models})}


def head(server: Server, name: str) -> str:
    """The beginning of the latest prompt of the model of this name."""
    return model_of(server, name).last_prompt[0].text


def model_of(server: Server, name: str) -> ScriptedModel:
    model = server.services.deps.models.get(name)
    assert isinstance(model, ScriptedModel)
    return model


async def test_a_write_is_seen_by_the_others_next_step_also_in_a_turn_that_runs(
    database: OneDatabase,
) -> None:
    release = asyncio.Event()
    looks = Call("recall_memory_search", {"query": "Ada", "request_heartbeat": True})
    held = Held(looks, release)
    scripts = team(ada=[append("The deadline is Friday."), say("Noted.")], ben=[held, say("Hi.")])
    async with serving(database, UNUSED, **scripts) as server:
        section = await shared(server)
        ada = await member(server, "ada", section)
        ben = await member(server, "ben", section)
        answer = asyncio.create_task(server.say(ben, "hello"))
        await held.reached.wait()
        before = head(server, "ben")
        await server.say(ada, "The deadline is Friday.")
        release.set()
        assert (await answer)["text"] == "Hi."
        after = head(server, "ben")
    assert "deadline" not in before
    assert "The deadline is Friday." in after


async def test_a_section_attached_in_a_turn_that_runs_can_be_written_at_its_next_step(
    database: OneDatabase,
) -> None:
    release = asyncio.Event()
    held = Held(append("first", section="human"), release)
    async with serving(
        database, UNUSED, **team(ben=[held, append("second"), say("Hi.")])
    ) as server:
        section = await shared(server, text="The team's notes.")
        ben = await server.create_agent(name="ben", model="ben")
        answer = asyncio.create_task(server.say(ben, "hello"))
        await held.reached.wait()
        await attach(server, ben, section)
        release.set()
        calls = [message["tool_call"] for message in (await answer)["messages"]]
        now = await ask(server, "GET", f"sections/{section}")
    assert [call["state"] for call in calls] == ["done", "done", "done"]
    assert now["text"] == "The team's notes.\nsecond"


async def test_every_readers_prompt_begins_alike_until_somebody_edits(
    database: OneDatabase,
) -> None:
    scripts = team(ada=[append("x"), say("Noted.")], ben=[say("1"), say("2"), say("3"), say("4")])
    async with serving(database, UNUSED, **scripts) as server:
        section = await shared(server)
        ada = await member(server, "ada", section)
        ben = await member(server, "ben", section)
        heads = []
        for number in range(4):
            if number == 2:
                await server.say(ada, "Write x!")
            await server.say(ben, "hello")
            heads.append(head(server, "ben"))
    assert heads[0] == heads[1] != heads[2] == heads[3]
    assert "Recall storage: 0 messages." in heads[1]
    assert "Recall storage: 4 messages." in heads[2]  # as of the edit: two turns before


@pytest.mark.parametrize("count", [6])
async def test_lines_that_many_agents_append_at_once_are_all_there(
    database: OneDatabase, count: int
) -> None:
    names = [f"agent{number}" for number in range(count)]
    scripts = team(**{name: [append(name), append(f"{name} again"), say("ok")] for name in names})
    async with serving(database, UNUSED, **scripts) as server:
        section = await shared(server)
        members = [await member(server, name, section) for name in names]
        await asyncio.gather(*(server.say(agent, "Write!") for agent in members))
        now = await ask(server, "GET", f"sections/{section}")
        history = (await ask(server, "GET", f"sections/{section}/history"))["items"]
    assert sorted(now["text"].split("\n")) == sorted(
        line for name in names for line in (name, f"{name} again")
    )
    assert [edit["version"] for edit in history] == list(range(2 * count + 1, 0, -1))
    assert {edit["agent_id"] for edit in history} == {None, *members}


async def test_of_two_agents_who_replace_the_same_text_the_later_learns_that_it_is_gone(
    database: OneDatabase,
) -> None:
    scripts = team(
        ada=[replace("Friday", "Monday"), say("ok")], ben=[replace("Friday", "Sunday"), say("ok")]
    )
    async with serving(database, UNUSED, **scripts) as server:
        section = await shared(server, text="The deadline is Friday.")
        members = [await member(server, name, section) for name in ("ada", "ben")]
        answers = await asyncio.gather(*(server.say(agent, "Change it!") for agent in members))
        now = await ask(server, "GET", f"sections/{section}")
    calls = [answer["messages"][0]["tool_call"] for answer in answers]
    assert sorted(call["state"] for call in calls) == ["done", "failed"]
    [reported] = [call["result"] for call in calls if call["state"] == "failed"]
    assert reported.startswith("'Friday' was not found in section 'team'.")
    assert now["version"] == 2


async def test_tools_of_an_agent_that_may_only_read_fail_clearly(database: OneDatabase) -> None:
    scripts = team(
        ben=[append("x"), replace("The", "A"), say("I may not."), append("y"), say("ok")]
    )
    async with serving(database, UNUSED, **scripts) as server:
        section = await shared(server, text="The rules.")
        ben = await member(server, "ben", section, read_only=True)
        answer = await server.say(ben, "Change the rules!")
        assert '<team characters="10/2000" read-only>' in head(server, "ben")
        before = await ask(server, "GET", f"sections/{section}")
        await ask(server, "PATCH", f"agents/{ben}/working-context/team", text="New rules.")
        await attach(server, ben, section, read_only=False)
        await server.say(ben, "And now?")
        after = await ask(server, "GET", f"sections/{section}")
    calls = [message["tool_call"] for message in answer["messages"]]
    assert [call["state"] for call in calls] == ["failed", "failed", "done"]
    assert calls[0]["result"] == "Section 'team' is read-only: you can't edit it."
    assert (before["text"], before["version"]) == ("The rules.", 1)
    assert after["text"] == "New rules.\ny"


async def test_a_section_by_itself_outlives_its_readers_and_is_deleted_without_any(
    database: OneDatabase,
) -> None:
    async with serving(database, UNUSED) as server:
        section = await shared(server, text="notes")
        other = await shared(server, name="other")
        ada, ben = [await server.create_agent(name=name) for name in ("ada", "ben")]
        for agent, read_only in ((ada, False), (ben, True)):
            seated = await attach(server, agent, section, read_only=read_only, place=1)
            assert (seated["name"], seated["read_only"]) == ("team", read_only)
        assert await attach(server, ben, section) == seated
        page = await ask(server, "GET", f"sections/{section}/readers?limit=1")
        rest = await ask(server, "GET", f"sections/{section}/readers?after={page['next']}")
        refused = await server.http.delete(f"/v1/sections/{section}")
        await ask(server, "DELETE", f"agents/{ada}/working-context/team", 204)
        await ask(server, "DELETE", f"agents/{ben}", 204)
        left = await ask(server, "GET", f"sections/{section}")
        listed = await ask(server, "GET", "sections?limit=1")
        named = await ask(server, "GET", "sections?name=other")
        await ask(server, "DELETE", f"sections/{section}", 204)
        assert server.rows("SELECT 1 FROM section_edits WHERE section_id = %s", section) == []
        await ask(server, "GET", f"sections/{section}", 404)
    readers = page["items"] + rest["items"]
    assert [(reader["agent_name"], reader["read_only"]) for reader in readers] == [
        ("ada", False),
        ("ben", True),
    ]
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "conflict")
    assert (left["text"], left["readers"], left["name"]) == ("notes", 0, "team")
    assert ([item["id"] for item in listed["items"]], listed["next"]) == ([section], section)
    assert [item["id"] for item in named["items"]] == [other]


async def test_an_agents_own_section_goes_with_its_last_reader(database: OneDatabase) -> None:
    async with serving(database, UNUSED) as server:
        ada = await server.create_agent()
        ben = await server.create_agent(sections=[])
        own = await ask(server, "GET", f"agents/{ada}/working-context/human")
        await attach(server, ben, own["id"])
        await ask(server, "DELETE", f"agents/{ada}", 204)
        left = await ask(server, "GET", f"agents/{ben}/working-context/team")
        await ask(server, "DELETE", f"agents/{ben}/working-context/team", 204)
        gone = (
            server.rows("SELECT count(*) FROM sections"),
            server.rows("SELECT count(*) FROM section_edits"),
        )
    assert (left["id"], left["readers"]) == (own["id"], 1)
    assert gone == ([(0,)], [(0,)])


async def test_what_can_not_be_attached_is_refused_and_changes_nothing(
    database: OneDatabase,
) -> None:
    async with serving(database, UNUSED) as server:
        section = await shared(server)
        agent = await server.create_agent()
        foreign = uuid4()
        server.rows(
            """INSERT INTO sections (id, tenant, name, character_limit)
               VALUES (%s, 'others', 'theirs', 10) RETURNING 1""",
            foreign,
        )
        await attach(server, agent, section)
        before = await ask(server, "GET", f"agents/{agent}/working-context")
        answers = [
            await server.http.put(
                f"/v1/agents/{whose}/working-context/{name}", json={"section_id": str(what)}
            )
            for whose, name, what in (
                (agent, "other", section),
                (agent, "human", section),
                (agent, "theirs", foreign),
                (agent, "none", uuid4()),
                (agent, "bad name!", section),
                (uuid4(), "team", section),
            )
        ]
        after = await ask(server, "GET", f"agents/{agent}/working-context")
    codes = [answer.json()["error"]["code"] for answer in answers]
    assert codes == [
        "conflict",
        "conflict",
        "not_found",
        "not_found",
        "invalid_input",
        "not_found",
    ]
    assert "as 'team'" in answers[0].json()["error"]["message"]
    assert after == before


async def test_an_undo_by_the_sections_id_is_seen_by_all(database: OneDatabase) -> None:
    scripts = team(ada=[append("wrong"), say("ok"), say("ok")])
    async with serving(database, UNUSED, **scripts) as server:
        section = await shared(server, text="right")
        ada = await member(server, "ada", section)
        await server.say(ada, "hello")
        assert "right\nwrong" in head(server, "ada")
        undone = await ask(server, "POST", f"sections/{section}/undo", expected_version=2)
        stale = await server.http.post(
            f"/v1/sections/{section}/restore", json={"version": 2, "expected_version": 2}
        )
        await server.say(ada, "hello")
        assert "wrong" not in head(server, "ada")
        renamed = await ask(
            server, "PATCH", f"sections/{section}", name="all", description="Ours.", limit=100
        )
    assert (undone["text"], undone["version"]) == ("right", 3)
    assert stale.json()["error"]["code"] == "version_conflict"
    assert (renamed["name"], renamed["limit"], renamed["version"]) == ("all", 100, 3)
