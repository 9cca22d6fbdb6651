"""Both clients on sections, documents, tools, calls that wait, and keys."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from memserver.client.events import ActionRequired, MessageSaid, ToolCalled, ToolReturned, TurnEnded
from memserver.errors import Conflict, NotFound
from memserver.testing.scripted import Call, ScriptedModel, say
from tests.support.client import once, served
from tests.support.mcp_demo import HERE, over_http
from tests.support.server import OneDatabase

APPEND = Call("working_context_append", {"section": "human", "content": "Ada."})


async def test_sections_are_added_shared_renamed_moved_and_taken_back(
    connect, database: OneDatabase
):
    with served(database, ScriptedModel()) as server:
        client = connect(server.url)
        agent, other = await client.agents.create("a"), await client.agents.create("b")
        context = client.working_context
        mine = await context.add(agent.id, "notes", text="One.", place=1)
        assert (await context.get(agent.id)).sections[0].name == "notes"
        shared = await context.attach(other.id, "theirs", mine.id, read_only=True)
        assert (shared.text, shared.read_only, shared.readers) == ("One.", True, 2)
        renamed = await context.edit(agent.id, "notes", name="log", place=3, text="Two.")
        assert (await context.section(agent.id, "log")) == renamed
        assert (await context.section(other.id, "theirs")).text == "Two."
        versions = [each.version async for each in context.all_history(agent.id, "log", limit=1)]
        assert versions == [2, 1]
        assert (await context.history(agent.id, "log")).items[0].actor == "api"
        undone = await context.undo(agent.id, "log", expected_version=2)
        assert undone.text == "One."
        assert (await context.restore(agent.id, "log", 2)).text == "Two."
        readers = [each.section async for each in client.sections.all_readers(mine.id, limit=1)]
        assert sorted(readers) == ["log", "theirs"]
        await context.detach(other.id, "theirs")
        assert (await client.sections.get(mine.id)).readers == 1


async def test_an_agent_is_written_to_a_file_and_made_of_it(
    connect, database: OneDatabase, tmp_path: Path
):
    file = tmp_path / "sam.zip"
    with served(database, ScriptedModel([say("Hello, Ada.")])) as server:
        client = connect(server.url)
        agent = await client.agents.create("sam")
        await client.messages.send(agent.id, "I am Ada.")
        await client.agents.export(agent.id, file, history=True)
        of_path = await client.agents.import_file(file, name="two")
        of_bytes = await client.agents.import_file(file.read_bytes(), name="three")
        assert (of_path.agent.name, of_path.messages, of_path.not_carried) == ("two", 2, [])
        assert of_bytes.messages == 2
        with pytest.raises(NotFound):
            await client.agents.export(UUID(int=1), tmp_path / "nobody.zip")
    assert os.listdir(tmp_path) == ["sam.zip"]


async def test_a_section_by_itself_has_its_own_life(connect, database: OneDatabase):
    with served(database, ScriptedModel()) as server:
        sections = connect(server.url).sections
        made = await sections.create("rules", text="Be brief.", limit=100)
        edited = await sections.edit(made.id, text="Be kind.", expected_version=made.version)
        assert [each async for each in sections.all(limit=1)] == [edited]
        assert (await sections.list(name="rules")).items == [await sections.get(made.id)]
        assert (await sections.undo(made.id)).text == "Be brief."
        assert (await sections.restore(made.id, 2)).text == "Be kind."
        assert len([each async for each in sections.all_history(made.id, limit=2)]) == 4
        assert (await sections.history(made.id, limit=1)).items[0].restores == 2
        assert (await sections.readers(made.id)).items == []
        await sections.delete(made.id)
        with pytest.raises(NotFound):
            await sections.get(made.id)


async def test_what_was_said_is_searched_page_by_page_or_whole(connect, database: OneDatabase):
    with served(database, ScriptedModel()) as server:
        client = connect(server.url)
        agent = await client.agents.create()
        past = [{"role": "user", "text": f"Tea {number}."} for number in range(5)]
        await client.messages.import_past(agent.id, past)
        first = await client.recall.search(agent.id, "Tea", mode="exact", limit=2)
        second = await client.recall.search(
            agent.id, "Tea", mode="exact", limit=2, after=first.next
        )
        assert (first.total, first.total_is_exact, second.total) == (5, True, None)
        whole = [each.text async for each in client.recall.all(agent.id, "Tea", limit=2)]
        assert whole[:4] == [each.text for each in (*first.items, *second.items)]
        assert len(whole) == 5


async def test_documents_are_uploaded_followed_and_deleted(connect, database: OneDatabase):
    with served(database, ScriptedModel()) as server:
        client = connect(server.url)
        agent = await client.agents.create()
        books = await client.collections.create("books")
        text = "Otters float. äöü"
        mine = await client.documents.upload_to_agent(
            agent.id, text.encode(), "otters.txt", tags=["a", "b"], metadata={"x": [1]}
        )
        assert (mine.name, mine.kind, mine.tags) == ("otters.txt", "text", ["a", "b"])
        assert mine.metadata == {"x": [1]}
        stored = await client.documents.get(mine.id)
        assert (await client.documents.list_of_agent(agent.id)).items == [stored]
        assert [each async for each in client.documents.all_of_agent(agent.id)] == [stored]
        assert await client.documents.file(mine.id) == text.encode()
        with pytest.raises(Conflict):
            await client.documents.text(mine.id)
        one = await client.documents.upload(books.id, b"Bees.", "bees.txt")
        same = await client.documents.upload(books.id, b"Bees.", "bees.txt", unique=True)
        assert (one.id, one.is_new, same.is_new) == (same.id, True, False)
        stored = await client.documents.get(one.id)
        assert (await client.documents.list(books.id)).items == [stored]
        assert [each async for each in client.documents.all(books.id)] == [stored]
        assert (await client.documents.cancel(one.id)).state == "cancelled"
        assert (await client.documents.resume(one.id)).state == "waiting"
        await client.documents.delete(one.id)
        with pytest.raises(NotFound):
            await client.documents.get(one.id)


async def test_an_upload_whose_answer_was_lost_is_stored_once(connect, database: OneDatabase):
    with served(database, ScriptedModel()) as server:
        client = connect(server.url)
        agent = await client.agents.create()
        server.line.cut = once("POST", "/documents", 0)
        stored = await client.documents.upload_to_agent(agent.id, b"\x00\xff", "odd.bin")
        [listed] = (await client.documents.list_of_agent(agent.id)).items
        assert listed.model_dump() == stored.model_dump(exclude={"is_new"})


async def test_tools_are_registered_attached_with_rules_and_taken_away(
    connect, database: OneDatabase
):
    with served(database, ScriptedModel(), tool_networks=HERE) as server:
        client = connect(server.url)
        agent = await client.agents.create()
        schema: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
        hook = await client.tools.create_webhook(
            "weather", "Of a city.", "http://127.0.0.1:9/x", parameters=schema, retries=0
        )
        assert hook.secret
        assert (await client.tools.get("weather")).secret is None
        changed = await client.tools.update("weather", description="Of a town.", timeout=3)
        assert (changed.description, changed.timeout, changed.retries) == ("Of a town.", 3, 0)
        await client.tools.create_client_tool("open_file", "Open a file.")
        names = [each.name async for each in client.tools.all(limit=2)]
        assert {"open_file", "weather", "send_message"} <= set(names)
        assert (await client.tools.list(limit=1)).items[0].name == min(names)
        attached = await client.tools.attach(agent.id, "weather", approval=True, max_calls=2)
        assert (attached.approval, attached.terminal, attached.max_calls) == (True, False, 2)
        assert attached in (await client.tools.of_agent(agent.id)).items
        had = [each.name async for each in client.tools.all_of_agent(agent.id, limit=3)]
        assert had == [each.name for each in (await client.tools.of_agent(agent.id)).items]
        await client.tools.detach(agent.id, "weather")
        await client.tools.delete("weather")
        with pytest.raises(NotFound):
            await client.tools.get("weather")


async def test_mcp_servers_are_registered_asked_again_and_deleted(connect, database: OneDatabase):
    with over_http() as port, served(database, ScriptedModel(), tool_networks=HERE) as server:
        servers = connect(server.url).mcp_servers
        made = await servers.create("wiki", f"http://127.0.0.1:{port}/mcp")
        assert "wiki__add" in made.tools
        assert made.refused
        assert (await servers.refresh(made.id)).tools == made.tools
        assert (await servers.get(made.id)).tools == made.tools
        assert [each.id async for each in servers.all()] == [made.id]
        await servers.delete(made.id)
        assert (await servers.list()).items == []


async def test_a_call_that_waits_is_approved_or_denied(connect, database: OneDatabase):
    model = ScriptedModel([APPEND, APPEND, say("Once.")])
    with served(database, model) as server:
        client = connect(server.url)
        agent = await client.agents.create()
        await client.tools.attach(agent.id, "working_context_append", approval=True)
        never = datetime(2100, 1, 1, tzinfo=UTC)
        answer = await client.messages.send(agent.id, "I am Ada.", expires_at=never)
        assert (answer.stop_reason, answer.text) == ("requires_action", "")
        assert answer.waiting.waits_for == "approval"
        [call] = (await client.calls.list()).items
        assert [each async for each in client.calls.all(agent.id)] == [call]
        assert (call.call_id, call.turn) == (answer.waiting.id, answer.turn)
        assert (await client.turns.get(agent.id, 1)).state == "requires_action"
        server.line.cut = once("POST", "/approval", 0)
        second = await client.calls.approve(agent.id, call.call_id)
        assert second.waiting.id != call.call_id
        last = await client.calls.deny(agent.id, second.waiting.id, "Once is enough.")
        assert (last.text, last.waiting) == ("Once.", None)
        assert "Once is enough." in last.messages[0].tool_call.result
        assert {each.expires_at async for each in client.messages.all(agent.id)} == {never}
        with pytest.raises(Conflict):
            await client.calls.approve(agent.id, call.call_id)


@pytest.mark.parametrize("cut", [None, 0, 1, 2, 3])
async def test_a_stream_says_what_is_to_be_done_and_continues_with_the_result(
    connect, database: OneDatabase, cut: int | None
):
    model = ScriptedModel([Call("open_file", {}), say("It is empty.")])
    with served(database, model) as server:
        client = connect(server.url)
        agent = await client.agents.create()
        await client.tools.create_client_tool("open_file", "Open a file.")
        await client.tools.attach(agent.id, "open_file")
        async with client.messages.stream(agent.id, "Look.") as stream:
            events = [event async for event in stream]
        paused = events[-1]
        assert isinstance(paused, ActionRequired)
        assert (paused.turn, paused.waits_for) == (1, "client")
        [called] = [event for event in events if isinstance(event, ToolCalled)]
        assert called.id == paused.call_id
        if cut is not None:
            server.line.cut = once("POST", "/result", cut)
        async with client.calls.stream_result(agent.id, called.id, {"size": 0}) as stream:
            rest = [event async for event in stream]
        returned = [event for event in rest if isinstance(event, ToolReturned)]
        assert (returned[0].id, returned[0].result) == (called.id, '{"size": 0}')
        said = [event.text for event in rest if isinstance(event, MessageSaid)]
        assert said == ["It is empty."]
        assert rest[-1] == TurnEnded(turn=1, steps=2, stop_reason="message_sent")


async def test_a_turn_that_waits_is_cancelled_and_a_decision_can_be_followed(
    connect, database: OneDatabase
):
    model = ScriptedModel([APPEND, APPEND, say("I may not.")])
    with served(database, model) as server:
        client = connect(server.url)
        agent = await client.agents.create()
        await client.tools.attach(agent.id, "working_context_append", approval=True)
        answer = await client.messages.send(agent.id, "One.")
        assert (await client.turns.cancel(agent.id, answer.turn)).stop_reason == "cancelled"
        call = (await client.messages.send(agent.id, "Two.")).waiting
        decided = client.calls.stream_decision(agent.id, call.id, approve=False, reason="No.")
        async with decided as stream:
            said = [event.text async for event in stream if isinstance(event, MessageSaid)]
        assert said == ["I may not."]


async def test_keys_and_tenants_are_made_listed_and_revoked(connect, database: OneDatabase):
    with served(database, ScriptedModel()) as server:
        client = connect(server.url)
        operator = await client.keys.create("operator", scopes=["admin"])
        client = connect(server.url, api_key=operator.key)
        made = await client.tenants.create("acme")
        assert await client.tenants.get("acme") == made
        assert [each.tenant async for each in client.tenants.all(limit=1)] == ["acme", "default"]
        assert len((await client.tenants.list()).items) == 2
        server.line.cut = once("POST", "/keys", 0)
        lost = await client.keys.create("theirs", tenant="acme")
        assert lost.key is None, "its answer was lost, and the secret with it"
        await client.keys.revoke(lost.id, tenant="acme")
        assert (await client.keys.get(lost.id, tenant="acme")).revoked_at is not None
        assert [each.id async for each in client.keys.all(tenant="acme")] == [lost.id]
        assert [each.name for each in (await client.keys.list()).items] == ["operator"]


async def test_a_tool_is_tried_once(connect, database: OneDatabase):
    with served(database, ScriptedModel()) as server:
        client = connect(server.url)
        await client.tools.create_webhook(
            "weather",
            "The weather.",
            "https://nobody.invalid/weather",
            parameters={"type": "object", "properties": {"city": {"type": "string"}}},
            retries=0,
        )
        agent = await client.agents.create()
        tried = await client.tools.try_out("weather", {"city": 5}, agent=agent.id)
        refused = await client.tools.try_out("weather", {"town": "Oslo"})
        with pytest.raises(NotFound):
            await client.tools.try_out("weather", agent="nobody")
    assert (tried.state, tried.arguments) == ("failed", {"city": "5"})
    assert refused.state == "refused"
