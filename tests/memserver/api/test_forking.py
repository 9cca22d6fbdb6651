"""Another agent begins at a message of one: with its memory, and without a trace in it."""

import asyncio
from collections.abc import Sequence
from typing import Any

from typing_extensions import override

from memserver.embeddings.base import Vector
from memserver.storage.erasure import NOTE
from memserver.testing.hashing_embedder import HashingEmbedder
from memserver.testing.scripted import Call, Held, ScriptedModel, say
from tests.memserver.memory.histories import remember_indexed
from tests.support.compacting import RESERVED, WINDOW, chat, of_prompt, positions, talk_until_queued
from tests.support.server import OneDatabase, Server, serving


class Counting(HashingEmbedder):
    """Counts what it embeds."""

    texts = 0

    @override
    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        self.texts += len(texts)
        return await super().embed(texts)


async def fork(server: Server, agent: str, **wanted: Any) -> dict[str, Any]:
    answer = await server.http.post(f"/v1/agents/{agent}/fork", json=wanted)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def test_a_fork_has_the_memory_and_the_history_up_to_a_message_and_its_source_stays(
    database: OneDatabase,
) -> None:
    embedder = Counting()
    model = ScriptedModel(chat)
    async with serving(database, model, embedder=embedder) as server:
        agent = await server.create_agent(
            name="sam", system_prompt="You are Sam.", options={"max_steps": 3}, metadata={"a": 1}
        )
        url = f"/v1/agents/{agent}"
        shared = (await server.http.post("/v1/sections", json={"name": "team"})).json()["id"]
        await server.http.put(f"{url}/working-context/team", json={"section_id": shared})
        await server.http.patch(f"{url}/working-context/human", json={"text": "Name: Ada"})
        await server.http.post(
            f"{url}/archival", json={"passages": [{"text": "The cello is red."}]}
        )
        for text in ("I live in Graz.", "I play the cello.", "It rains."):
            await server.say(agent, text)
        await server.run_jobs()
        embedded = embedder.texts

        copy = await fork(server, "sam", name="sam-2", position=2000)
        other = copy["id"]
        assert embedder.texts == embedded
        assert copy["name"] == "sam-2"
        for field in ("system_prompt", "options", "metadata", "language"):
            assert copy[field] == (await server.get(agent))[field]
        assert copy["message_count"] == 3
        assert await positions(server, other) == [1000, 1001, 2000]
        assert await positions(server, agent) == [1000, 1001, 2000, 2001, 3000, 3001]
        found = await server.get(f"{other}/recall/search", query="rains", mode="exact")
        assert found["items"] == []
        cello = await server.get(f"{other}/recall/search", query="cello", mode="meaning")
        assert cello["items"][0]["text"] == "I play the cello."
        assert cello["coverage"] == {"embedded": 3, "messages": 3, "complete": True}
        archival = await server.get(f"{other}/archival/search", query="cello")
        assert [each["text"] for each in archival["items"]] == ["The cello is red."]

        await server.say(other, "I play the viola.")
        assert "It rains." not in of_prompt(model.last_prompt)
        for kept in ("I live in Graz.", "I play the cello.", "Name: Ada", "You are Sam."):
            assert kept in of_prompt(model.last_prompt)
        await server.http.patch(f"/v1/agents/{other}/working-context/human", json={"text": "Bob"})
        await server.http.patch(f"/v1/agents/{other}/working-context/team", json={"text": "Blue"})
        texts = {
            each["name"]: each["text"]
            for each in (await server.get(f"{agent}/working-context"))["sections"]
        }
        assert (texts["human"], texts["team"]) == ("Name: Ada", "Blue")
        assert (await server.http.delete(url)).status_code == 204
        await server.run_jobs()
        assert (await server.say(other, "Still there?"))["text"] == "I see."


async def test_a_fork_in_the_middle_of_a_long_history_is_found_in_as_its_source_is(
    database: OneDatabase,
) -> None:
    texts = [f"The {number}th stone is grey." for number in range(1, 301)]
    async with serving(database, ScriptedModel(chat)) as server:
        agent = await server.create_agent()
        await remember_indexed(server, agent, texts)
        copy = (await fork(server, agent, position=150_000))["id"]
        for _ in range(2):  # before and after its index is complete
            for mode in ("exact", "words"):
                there = await server.get(f"{copy}/recall/search", query="149th stone", mode=mode)
                assert there["items"][0]["text"] == texts[148]
                gone = await server.get(f"{copy}/recall/search", query="151th", mode=mode)
                assert gone["items"] == []
            everything = await server.get(f"{copy}/recall/search", query="stone", mode="exact")
            assert everything["total"] == 150
            await server.run_jobs()
        assert server.rows(
            "SELECT indexed_to, messages FROM recall_index WHERE agent_id = %s", copy
        ) == [(151_000, 150)]
        await fork(server, copy, position=1000)


async def test_a_fork_before_an_eviction_has_the_summary_and_the_queue_of_that_time(
    database: OneDatabase,
) -> None:
    model = ScriptedModel(
        chat, context_window=WINDOW, summary=lambda _: f"Notes {len(model.writes)}."
    )
    async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
        agent = await server.create_agent()
        for _ in range(2):
            await talk_until_queued(server, agent)
            await server.run_jobs()
        [(first,), (second,)] = server.rows("SELECT until FROM summaries ORDER BY until")
        at = (await positions_between(server, agent, first, second))[-1]
        early = (await fork(server, agent, position=at))["id"]
        late = (await fork(server, agent))["id"]
        [(said,)] = server.rows(
            "SELECT max(position) FROM messages WHERE position < %s AND role = 'user'", second
        )
        await server.http.delete(f"/v1/agents/{agent}/messages/{said}")
        outdated = (await fork(server, agent))["id"]
        views = {each: await server.get(f"{each}/context") for each in (early, late, outdated)}
        await server.run_jobs()
        again = await server.get(f"{outdated}/context")
        queue = [each["position"] for each in views[early]["queue"]]
    shown = {each: str(view["parts"]) for each, view in views.items()}
    assert "Notes 1." in shown[early]
    assert "Notes 2." in shown[late]
    assert NOTE in shown[outdated]
    assert "Notes 1." not in str(again["parts"])
    assert (queue[0], queue[-1]) == (first, at)


async def positions_between(server: Server, agent: str, start: int, end: int) -> list[int]:
    rows = server.rows(
        "SELECT position FROM messages WHERE agent_id = %s AND position >= %s AND position < %s ORDER BY 1",
        *(agent, start, end),
    )
    return [position for (position,) in rows]


async def test_beside_a_running_turn_a_fork_ends_before_it(database: OneDatabase) -> None:
    held = Held(
        Call("working_context_append", {"section": "human", "content": "x"}), asyncio.Event()
    )
    model = ScriptedModel([say("Noted."), held, say("Done.")])
    async with serving(database, model) as server:
        agent = await server.create_agent(name="sam")
        await server.say(agent, "I am Ada.")
        turn = asyncio.create_task(server.say(agent, "Note this."))
        await held.reached.wait()
        inside = await server.http.post("/v1/agents/sam/fork", json={"position": 2000})
        nowhere = await server.http.post("/v1/agents/sam/fork", json={"position": 9000})
        taken = await server.http.post("/v1/agents/sam/fork", json={"name": "sam"})
        copy = await fork(server, agent)
        empty = await fork(server, await server.create_agent())
        held.release.set()
        await turn
        assert await positions(server, copy["id"]) == [1000, 1001]
        assert await positions(server, empty["id"]) == []
    assert (inside.status_code, nowhere.status_code, taken.status_code) == (409, 404, 409)
    assert "has not ended" in inside.json()["error"]["message"]
    assert copy["name"].startswith("sam-")
