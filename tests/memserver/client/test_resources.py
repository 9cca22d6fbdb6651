"""Both clients do all that the API can do, and give back typed values."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from memserver.client import UNSET
from memserver.errors import Conflict, InvalidInput, ModelUnavailable, NotFound
from memserver.testing.scripted import ScriptedModel, say
from tests.support.client import served
from tests.support.server import OneDatabase

NOBODY = UUID(int=0)


async def test_an_agent_is_created_found_changed_and_deleted(connect, database: OneDatabase):
    with served(database, ScriptedModel()) as server:
        client = connect(server.url)
        made = await client.agents.create(
            "ada/1",
            model="m",
            metadata={"a": 1},
            options={"max_steps": 3},
            sections=[{"name": "x"}],
        )
        assert (made.name, made.model, made.options.max_steps) == ("ada/1", "m", 3)
        assert await client.agents.find("ada/1") == made == await client.agents.get(made.id)
        assert await client.agents.find("ben") is None
        changed = await client.agents.update(made.id, model=None, system_prompt="Hi.", name=UNSET)
        assert (changed.name, changed.model, changed.system_prompt) == ("ada/1", None, "Hi.")
        assert changed.metadata == {"a": 1}
        view = await client.agents.context(made.id)
        assert 0 < view.fullness < 1
        assert await client.agents.delete(made.id) is None
        with pytest.raises(NotFound):
            await client.agents.get(made.id)


async def test_a_list_is_read_page_by_page_or_whole(connect, database: OneDatabase):
    with served(database, ScriptedModel()) as server:
        client = connect(server.url)
        made = [await client.agents.create(f"agent-{number}") for number in range(5)]
        first = await client.agents.list(limit=2)
        assert first.items == made[:2]
        assert (await client.agents.list(limit=2, after=first.next)).items == made[2:4]
        assert [agent async for agent in client.agents.all(limit=2)] == made
        newest_first = [agent async for agent in client.agents.all(limit=2, order="desc")]
        assert newest_first == made[::-1]


async def test_messages_are_sent_imported_listed_and_searched(connect, database: OneDatabase):
    model = ScriptedModel([say("Hello, Ada.", thought="A guest.")])
    with served(database, model) as server:
        client = connect(server.url)
        agent = await client.agents.create("sam")
        past = [
            {"role": "user", "text": "Before.", "created_at": datetime(2024, 5, 1, tzinfo=UTC)},
            {"role": "assistant", "text": "Long ago."},
        ]
        imported = await client.messages.import_past(agent.id, past)
        assert (imported.kind, imported.state) == ("import", "done")
        answer = await client.messages.send(agent.id, "I am Ada.")
        assert (answer.text, answer.steps) == ("Hello, Ada.", 1)
        assert answer.messages[0].thought == "A guest."
        assert answer.messages[0].tool_call.name == "send_message"
        assert (await client.turns.get(agent.id, answer.turn)).stop_reason == "message_sent"
        newest = [message.text async for message in client.messages.all(agent.id, limit=1)]
        oldest = [
            message.text async for message in client.messages.all(agent.id, order="asc", limit=3)
        ]
        assert newest == oldest[::-1] == ["Hello, Ada.", "I am Ada.", "Long ago.", "Before."]
        found = await client.recall.search(agent.id, "ADA", ignore_case=True, role="user")
        assert [message.text for message in found.items] == ["I am Ada."]
        dated = await client.recall.search(agent.id, end_date=datetime(2024, 5, 1).date())  # noqa: DTZ001
        assert dated.total == 1


async def test_a_working_context_is_read_and_edited(connect, database: OneDatabase):
    with served(database, ScriptedModel()) as server:
        client = connect(server.url)
        agent = await client.agents.create()
        edited = await client.working_context.edit(agent.id, "human", text="Name: Ada")
        assert (await client.working_context.get(agent.id))["human"] == edited
        with pytest.raises(NotFound):
            await client.working_context.edit(agent.id, "a/b?c", text="")


async def test_an_agents_passages_are_inserted_searched_and_deleted(connect, database: OneDatabase):
    with served(database, ScriptedModel()) as server:
        client = connect(server.url)
        agent = await client.agents.create()
        stored = await client.archival.insert(
            agent.id,
            ["Otters float.", {"text": "Bees dance.", "tags": ["bee"], "metadata": {"a": 1}}],
        )
        otters, bees = stored.items
        everything = [passage async for passage in client.archival.all(agent.id, limit=1)]
        assert everything == [otters, bees]
        listed = await client.archival.list(agent.id, tag=["bee"], metadata={"a": 1})
        assert listed.items == [bees]
        found = await client.archival.search(agent.id, "otters", mode="text")
        assert [(each.id, each.sources[0].retriever) for each in found.items] == [
            (otters.id, "text")
        ]
        await client.archival.delete(agent.id, otters.id)
        assert (await client.archival.list(agent.id)).items == [bees]


async def test_collections_are_made_filled_shared_and_searched(connect, database: OneDatabase):
    with served(database, ScriptedModel()) as server:
        client = connect(server.url)
        agent = await client.agents.create()
        made = await client.collections.create("books", description="Read.")
        changed = await client.collections.update(made.id, description="To read.")
        assert changed == await client.collections.get(made.id)
        assert (await client.collections.list(name="books")).items == [changed]
        [first] = (await client.passages.insert(made.id, ["A tale of bees."])).items
        tagged = await client.passages.update(made.id, first.id, tags=["bee"])
        assert await client.passages.get(made.id, first.id) == tagged
        assert [each async for each in client.passages.all(made.id, any_tag=["bee"])] == [tagged]
        found = await client.collections.search(made.id, "bees")
        assert [each.id for each in found.items] == [first.id]
        await client.archival.attach(agent.id, made.id)
        searched = [each.id for each in (await client.archival.collections(agent.id)).items]
        assert searched[1:] == [made.id]
        await client.archival.detach(agent.id, made.id)
        assert len((await client.archival.collections(agent.id)).items) == 1
        await client.passages.delete(made.id, first.id)
        await client.collections.delete(made.id)
        assert [each async for each in client.collections.all()] == []


async def test_the_server_says_whether_it_is_well_and_ready(connect, database: OneDatabase):
    with served(database, ScriptedModel()) as server:
        client = connect(server.url)
        assert (await client.health()).status == "ok"
        assert (await client.ready()).ready


async def test_errors_are_exceptions_of_the_servers_codes(connect, database: OneDatabase):
    model = ScriptedModel([ModelUnavailable("It is down.", hint="Start it.")])
    with served(database, model) as server:
        client = connect(server.url)
        agent = await client.agents.create("sam")
        with pytest.raises(NotFound, match="There is no agent") as missing:
            await client.agents.get(NOBODY)
        assert (missing.value.code, bool(missing.value.hint)) == ("not_found", True)
        with pytest.raises(Conflict):
            await client.agents.create("sam")
        with pytest.raises(InvalidInput, match="limit"):
            await client.agents.list(limit=0)
        with pytest.raises(ModelUnavailable) as down:
            await client.messages.send(agent.id, "Hi")
        assert (down.value.message, down.value.hint) == ("It is down.", "Start it.")
        asked = [path for method, path in server.line.log if path.endswith("/messages")]
        assert len(asked) == 1, "a turn that failed is not asked for again"
