"""Automatic recall: the server searches for the message in the agent's name, before the model's first step."""

import asyncio
import re
from typing import Any

import pytest

from memserver.embeddings.base import Vector
from memserver.errors import EmbeddingError
from memserver.memory import recall
from memserver.testing.hashing_embedder import HashingEmbedder
from memserver.testing.scripted import Call, Held, ScriptedModel, say
from tests.support.server import OneDatabase, Server, serving

WINDOW, RESERVED = 2600, 200
AUTO = {"auto_recall": True}
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d"
CELLO = "My cello is called Hugo."


def chatting() -> ScriptedModel:
    return ScriptedModel(lambda _p, _t: say("I see."), context_window=WINDOW)


async def with_history(server: Server, **options: Any) -> str:
    """An agent whose first messages have left the queue, and are indexed."""
    agent = await server.create_agent(options=AUTO | options)
    texts = [CELLO, "It rains in Graz today.", *[f"filler{n} {'word ' * 19}" for n in range(120)]]
    past = [{"role": "user", "text": text} for text in texts]
    done = await server.http.post(f"/v1/agents/{agent}/messages/import", json={"messages": past})
    assert done.status_code == 200
    await server.run_jobs()
    queue = (await server.get(f"{agent}/context"))["queue"]
    assert all(message["text"] != CELLO for message in queue)
    return agent


def made(answer: dict[str, Any]) -> list[str]:
    """The calls of a turn, apart from its pressure alert's."""
    calls = [message["tool_call"] for message in answer["messages"] if message["tool_call"]]
    return [call["name"] for call in calls if call["name"] != "nothing_to_save"]


async def test_what_is_out_of_sight_is_found_before_the_first_step_and_stays_in_the_history(
    database: OneDatabase,
) -> None:
    model = chatting()
    async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
        agent = await with_history(server)
        answer = await server.say(agent, "How is my cello called?")
        calls = sum(message["tool_call"] is not None for message in answer["messages"])
        events = await server.events(agent, "Is my cello called Otto?")
        history = await server.get(f"{agent}/messages", limit=5, order="desc")
    assert made(answer) == ["recall_memory_search", "send_message"]
    found = answer["messages"][0]["tool_call"]
    assert found["id"].startswith("auto_")
    assert found["arguments"] == {"query": "How is my cello called?", "request_heartbeat": True}
    head, best, *_ = found["result"].splitlines()
    assert head.startswith("Showing 5 of ")
    assert best.startswith("[m1000, ")
    assert best.endswith(CELLO)
    assert answer["steps"] == calls - 1
    assert answer["stop_reason"] == "message_sent"
    asking, result = model.seen[0].prompt[-2:]
    assert asking.call is not None
    assert asking.call.name == "recall_memory_search"
    assert CELLO in result.text
    kinds = [kind for kind, _ in events]
    assert kinds.index("tool_result") < kinds.index("message_delta")
    assert "recall_memory_search" in str(history["items"])


async def test_its_page_is_that_of_the_agents_own_search_and_can_be_turned(
    database: OneDatabase,
) -> None:
    asked = "How is my cello called?"

    async def pages(*, automatic: bool, page: int) -> list[list[str]]:
        own = {"query": asked, "page": page, "request_heartbeat": True}
        model = ScriptedModel(
            [Call("recall_memory_search", own), say("Hugo.")], context_window=WINDOW
        )
        async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
            agent = await with_history(server, auto_recall=automatic)
            answer = await server.say(agent, asked)
        calls = [each for message in answer["messages"] if (each := message["tool_call"])]
        shown = [call["result"] for call in calls if call["name"] == "recall_memory_search"]
        return [re.sub(TIME, "", page).splitlines() for page in shown]

    first, second = await pages(automatic=True, page=2)
    [own] = await pages(automatic=False, page=1)
    assert first == own
    assert "(page 2/" in second[0]
    assert not set(first[1:]) & set(second[1:])


async def test_nothing_near_enough_nothing_out_of_sight_or_nothing_said_makes_no_step(
    database: OneDatabase,
) -> None:
    async with serving(database, chatting(), llm_max_output_tokens=RESERVED) as server:
        agent = await with_history(server)
        far = await server.say(agent, "Submarines need ballast tanks.")
        plain = await server.say(agent, "How are you?")
        fresh = await server.create_agent(options=AUTO)
        await server.say(fresh, CELLO)
        seen = await server.say(fresh, "How is my cello called?")
        without = await with_history(server, auto_recall=False)
        off = await server.say(without, "How is my cello called?")
    assert [made(each) for each in (far, plain, seen, off)] == [["send_message"]] * 4


async def test_what_matches_in_sight_alone_is_not_searched_for(database: OneDatabase) -> None:
    boats = "Submarines need ballast tanks."
    async with serving(database, chatting(), llm_max_output_tokens=RESERVED) as server:
        agent = await with_history(server)
        before = await server.say(agent, boats)
        await server.run_jobs()
        asked = await server.say(agent, boats)
        found = await server.get(f"{agent}/recall/search", query=boats)
    assert boats in str(found)
    assert made(before) == made(asked) == ["send_message"]


async def test_the_servers_setting_holds_for_agents_that_say_nothing_and_the_floor_counts(
    database: OneDatabase,
) -> None:
    settings = {"llm_max_output_tokens": RESERVED, "auto_recall": True}
    async with serving(database, chatting(), **settings) as server:
        agent = await with_history(server, auto_recall=None, auto_recall_floor=0)
        unlike = await server.say(agent, "Submarines need ballast tanks.")
        odd = await server.http.post("/v1/agents", json={"options": {"auto_recall_floor": 2}})
    assert made(unlike) == ["recall_memory_search", "send_message"]
    assert "Showing 5 of " in unlike["messages"][0]["tool_call"]["result"]
    assert odd.status_code == 422


class Failing(HashingEmbedder):
    """Works until it is asked to fail or to hang."""

    def __init__(self) -> None:
        super().__init__()
        self.how = ""

    async def embed(self, texts: Any) -> list[Vector]:
        if self.how == "fails":
            raise EmbeddingError("The embedder is gone.")
        if self.how == "hangs":
            await asyncio.Event().wait()
        return await super().embed(texts)


@pytest.mark.parametrize("how", ["fails", "hangs"])
async def test_an_embedder_that_fails_or_hangs_leaves_the_search_by_words(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr("memserver.agent.auto_recall.PATIENCE", 0.05)
    embedder = Failing()
    settings = {"llm_max_output_tokens": RESERVED, "embedder": embedder}
    async with serving(database, chatting(), **settings) as server:
        agent = await with_history(server)
        embedder.how = how
        words = await server.say(agent, "How is my cello called?")
        nothing = await server.say(agent, "Submarines need ballast tanks.")
    assert CELLO in words["messages"][0]["tool_call"]["result"]
    assert made(nothing) == ["send_message"]


async def test_it_counts_as_no_call_of_the_agents_and_needs_the_tool(
    database: OneDatabase,
) -> None:
    look = Call("archival_memory_search", {"query": "x"})
    model = ScriptedModel([look, say("Hugo."), look, say("Why?")], context_window=WINDOW)
    async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
        agent = await with_history(server, max_steps=2)
        tools = f"/v1/agents/{agent}/tools"
        await server.http.put(f"{tools}/archival_memory_search", json={"first": True})
        first = await server.say(agent, "How is my cello called?")
        await server.http.delete(f"{tools}/recall_memory_search")
        without = await server.say(agent, "How is my cello called?")
    assert made(first) == ["recall_memory_search", "archival_memory_search", "send_message"]
    assert [tool.name for tool in model.seen[0].tools] == ["archival_memory_search"]
    assert made(without) == ["archival_memory_search", "send_message"]


async def test_a_turn_cut_off_after_it_searches_no_second_time(database: OneDatabase) -> None:
    held = Held(say("Never."), asyncio.Event())
    model = ScriptedModel([held], context_window=WINDOW)
    key = {"Idempotency-Key": "k"}
    async with serving(database, model, llm_max_output_tokens=RESERVED) as server:
        agent = await with_history(server)
        asking = asyncio.create_task(
            server.http.post(
                f"/v1/agents/{agent}/messages",
                json={"text": "How is my cello called?"},
                headers=key,
            )
        )
        await held.reached.wait()
    asking.cancel()
    async with serving(database, chatting(), llm_max_output_tokens=RESERVED) as server:
        answer = await server.say(agent, "How is my cello called?", **key)
        [calls] = server.rows("SELECT count(*) FROM tool_calls WHERE starts_with(call_id, 'auto_')")
    assert made(answer) == ["recall_memory_search", "send_message"]
    assert calls == (1,)


async def test_a_plain_turn_of_an_agent_without_it_asks_the_history_nothing(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("searched")

    async with serving(database, chatting(), llm_max_output_tokens=RESERVED) as server:
        agent = await with_history(server, auto_recall=False)
        monkeypatch.setattr(recall.RecallStorage, "search", never)
        assert (await server.say(agent, "How is my cello called?"))["text"] == "I see."
