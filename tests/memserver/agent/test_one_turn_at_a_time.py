"""One turn per agent at a time, over all workers, in the order of arrival, nothing lost or done twice."""

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import httpx2
import pytest

from memserver.messages import Entry, PromptMessage, ToolSpec
from memserver.storage import recall
from memserver.testing.scripted import Call, Held, ScriptedModel, say
from tests.support.server import OneDatabase, serving


def echo(prompt: Sequence[PromptMessage], _: Sequence[ToolSpec]) -> Call:
    return say(f"echo: {prompt[-1].text.partition('] ')[2]}")


async def test_fifty_messages_through_two_workers_are_answered_once_each_in_one_order(
    database: OneDatabase,
) -> None:
    first, second = ScriptedModel(echo), ScriptedModel(echo)
    async with serving(database, first) as one, serving(database, second) as two:
        agent = await one.create_agent()
        texts = [f"message {number}" for number in range(50)]
        posted = await asyncio.gather(
            *((one, two)[number % 2].say(agent, text) for number, text in enumerate(texts))
        )
        listed = []
        after = 0
        while True:
            page = await one.get(f"{agent}/messages", after=after, order="asc", limit=30)
            listed += page["items"]
            if page["next"] is None:
                break
            after = page["next"]
    assert [answer["text"] for answer in posted] == [f"echo: {text}" for text in texts]
    assert len(listed) == 100
    asked = [item["text"] for item in listed if item["role"] == "user"]
    assert sorted(asked) == sorted(texts)
    answered = [item["text"] for item in listed if item["role"] == "assistant"]
    assert answered == [f"echo: {text}" for text in asked]
    # Each prompt ends with the message it answers: none saw a later one.
    ends = [seen.prompt[-1].text for model in (first, second) for seen in model.seen]
    assert len(ends) == 50


async def test_a_message_posted_while_a_turn_runs_is_not_in_that_turns_prompt(
    database: OneDatabase,
) -> None:
    release = asyncio.Event()
    held = Held(say("one"), release)
    model = ScriptedModel([held, say("two")])
    async with serving(database, model) as server:
        agent = await server.create_agent()
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(server.say(agent, "first"))
            await held.reached.wait()
            second = tasks.create_task(server.say(agent, "second"))
            while not server.rows("SELECT 1 FROM turns WHERE turn = 2"):
                await asyncio.to_thread(lambda: None)
            history = await server.get(f"{agent}/messages")
            release.set()
        assert [item["text"] for item in history["items"]] == ["first"]
    assert first.result()["text"] == "one"
    assert second.result()["text"] == "two"
    assert "second" not in "".join(message.text for message in model.seen[0].prompt)
    roles = [message.role for message in model.seen[1].prompt]
    assert roles == ["system", "user", "assistant", "tool", "user"]


async def test_a_stopped_workers_waiting_messages_are_answered_by_another(
    database: OneDatabase,
) -> None:
    release = asyncio.Event()
    held = Held(say("never"), release)
    async with serving(database, ScriptedModel([held])) as one:
        agent = await one.create_agent()
        lost = []
        for number in range(3):
            post = one.http.post(f"/v1/agents/{agent}/messages", json={"text": f"m{number}"})
            lost.append(asyncio.create_task(post))
            while len(one.rows("SELECT 1 FROM turns")) <= number:
                await asyncio.to_thread(lambda: None)
    for task in lost:
        task.cancel()
    await asyncio.gather(*lost, return_exceptions=True)
    model = ScriptedModel(echo)
    async with serving(database, model) as two:
        answer = await two.say(agent, "m3")
        history = await two.get(f"{agent}/messages", order="asc")
    assert answer["text"] == "echo: m3"
    said = [item["text"] for item in history["items"]]
    assert said == [text for number in range(4) for text in (f"m{number}", f"echo: m{number}")]


async def test_a_stopped_worker_begins_nothing_that_comes_too_late(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel(echo)) as server:
        agent = UUID(await server.create_agent())
        worker = server.services.worker
        assert worker.ensure_serving(agent, "default")
    assert not worker.ensure_serving(agent, "default")
    assert not worker.serves(agent)


async def test_a_repeated_idempotency_key_is_stored_and_answered_once(
    database: OneDatabase,
) -> None:
    model = ScriptedModel(echo)
    async with serving(database, model) as one, serving(database, model) as two:
        agent = await one.create_agent()
        key = {"Idempotency-Key": "k1"}
        together = await asyncio.gather(
            *(server.say(agent, "hello", **key) for server in (one, two, one))
        )
        later = await two.say(agent, "hello", **key)
        other: httpx2.Response = await one.http.post(
            f"/v1/agents/{agent}/messages", json={"text": "bye"}, headers=key
        )
    assert len(model.seen) == 1
    texts = [answer["text"] for answer in (*together, later)]
    assert texts == ["echo: hello"] * 4
    assert {answer["turn"] for answer in (*together, later)} == {1}
    assert all(answer["messages"] == later["messages"] for answer in together)
    assert other.status_code == 409
    assert other.json()["error"]["code"] == "conflict"


async def test_a_worker_that_lost_its_lease_writes_nothing(database: OneDatabase) -> None:
    release = asyncio.Event()
    held = Held(say("too late"), release)
    model = ScriptedModel(echo)
    async with serving(database, ScriptedModel([held])) as one:
        agent = await one.create_agent()
        slow = asyncio.create_task(one.say(agent, "hello"))
        await held.reached.wait()
        # As after a long pause of the whole process: the lease is over, somebody else takes it.
        one.rows(
            """UPDATE agent_state SET lease_owner = 'nobody',
                   lease_expires_at = now() - interval '1 hour' RETURNING 1"""
        )
        async with serving(database, model) as two:
            answer = await two.say(agent, "again")
            release.set()
            first = await slow
            history = await two.get(f"{agent}/messages", order="asc")
    assert first["text"] == "echo: hello"
    assert answer["text"] == "echo: again"
    said = [item["text"] for item in history["items"]]
    assert said == ["hello", "echo: hello", "again", "echo: again"]


async def test_a_renewal_does_not_take_a_lease_for_lost_that_is_being_taken(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = asyncio.Event()
    held = Held(say("hi"), release)
    read = recall.queue

    async def read_during_a_renewal(*arguments: Any) -> list[Entry]:
        await server.services.worker._renew()
        return await read(*arguments)

    async with serving(database, ScriptedModel([held])) as server:
        agent = await server.create_agent()
        monkeypatch.setattr(recall, "queue", read_during_a_renewal)
        answer = asyncio.create_task(server.say(agent, "hello"))
        await held.reached.wait()
        assert server.services.worker.serves(UUID(agent))
        release.set()
        assert (await answer)["text"] == "hi"
