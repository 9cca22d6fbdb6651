"""Agents move out as files and in again."""

import asyncio
import re
import tracemalloc
from base64 import b64encode
from hashlib import sha256
from typing import Any
from uuid import UUID

import httpx2
import pytest

from memserver.agent_files.export import Contents, Export
from memserver.agent_files.records import LISTS, VERSION, AgentRecord, State
from memserver.errors import NotFound
from memserver.storage.api_keys import DEFAULT_TENANT
from memserver.testing.hashing_embedder import HashingEmbedder
from memserver.testing.scripted import Held, ScriptedModel, say
from tests.support.agent_files import closed, opened, smallest, with_messages
from tests.support.moving import export, import_file, lived, rows, talkative
from tests.support.picture_files import png
from tests.support.server import OneDatabase, serving


def comparable(content: bytes) -> dict[str, Any]:
    """What two exports of the same agent have in common: all but ids, name and times of the export."""
    values = opened(content)
    del values["manifest.json"]["exported_at"]
    for name in ("id", "name"):
        del values["agent.json"][name]
    for passage in values["passages.jsonl"]:
        del passage["id"]
    return values


@pytest.mark.parametrize("vectors", [False, True])
async def test_what_is_exported_imported_and_exported_again_is_the_same(
    database: OneDatabase, vectors: bool
) -> None:
    async with serving(database, talkative()) as server:
        agent = await lived(server)
        first = await export(server, agent, history=True, vectors=vectors)
        answer = await import_file(server, first, name="sam again")
        assert answer.status_code == 201, answer.text
        second = await export(server, answer.json()["agent"]["id"], history=True, vectors=vectors)
        assert comparable(second) == comparable(first)
        values = opened(first)
        names = {name: len(value) for name, value in values.items() if name.endswith("l")}
        assert all(
            names[f"{name}.jsonl"] for name in ("sections", "edits", "tools", "turns", "messages")
        )
        assert len(values["passages.jsonl"]) == 4
        assert any("call" in message for message in values["messages.jsonl"])
        assert answer.json()["not_carried"] == []
        assert answer.json()["embedded"] is not vectors
        assert answer.json()["agent"]["id"] != agent


async def test_an_agent_that_moved_to_another_server_continues_where_it_was(
    database: OneDatabase, other_database: OneDatabase
) -> None:
    async with serving(database, talkative()) as server:
        agent = await lived(server)
        content = await export(server, agent)
        prompt = await server.get(f"{agent}/context")
        found = await server.get(f"{agent}/archival/search", query="passage 1")
    async with serving(
        other_database, ScriptedModel(lambda _prompt, _tools: say("still here"))
    ) as server:
        answer = (await import_file(server, content, keep_ids=True)).json()
        assert answer["agent"]["id"] == agent
        assert [each["kind"] for each in answer["not_carried"]] == ["collection"]
        assert (await server.get(f"{agent}/context"))["parts"] == prompt["parts"]
        again = await server.get(f"{agent}/archival/search", query="passage 1")
        assert [each["id"] for each in again["items"]] == [each["id"] for each in found["items"]]
        said = await server.say(agent, "Are you there?")
        assert said["messages"][-1]["text"] == "still here"
        history = await server.get(f"{agent}/messages", limit=100)
        assert {"long ago", "hello", "still here"} <= {each["text"] for each in history["items"]}
        repeated = await server.say(agent, "Good morning, 👩‍🔬!", **{"Idempotency-Key": "first"})
        assert repeated["turn"] == 1
        searched = await server.get(f"{agent}/recall/search", query="long ago")
        assert searched["total"] == 1


async def test_without_history_the_last_version_of_a_section_is_all_there_is(
    database: OneDatabase,
) -> None:
    async with serving(database, talkative()) as server:
        agent = await lived(server)
        content = await export(server, agent)
        made = (await import_file(server, content, name="b")).json()["agent"]["id"]
        history = await server.get(f"{made}/working-context/human/history")
        assert [(each["version"], each["text"]) for each in history["items"]] == [
            (3, "Name: Ada. Likes tea.")
        ]
        edit = {"text": "Name: Ada Lovelace", "expected_version": 3}
        url = f"/v1/agents/{made}/working-context/human"
        assert (await server.http.patch(url, json=edit)).status_code == 200


async def test_passages_of_another_embedding_model_are_embedded_again(
    database: OneDatabase, other_database: OneDatabase
) -> None:
    async with serving(database, talkative()) as server:
        content = await export(server, await lived(server), vectors=True)
    async with serving(
        other_database, talkative(), embedder=HashingEmbedder(model="another")
    ) as server:
        answer = (await import_file(server, content)).json()
        assert answer["embedded"] is True
        agent = answer["agent"]["id"]
        query = {"query": "passage 2", "mode": "vector"}
        found = await server.get(f"{agent}/archival/search", **query)
        assert found["items"][0]["text"] == "passage 2"
        assert found["items"][0]["score"] == pytest.approx(1, abs=1e-3)


async def test_an_import_that_is_repeated_under_its_key_is_done_once(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:

        async def post(values: dict[str, Any], **query: Any) -> httpx2.Response:
            return await server.http.post(
                "/v1/agents/import",
                content=closed(values),
                params=query,
                headers={"Idempotency-Key": "k"},
            )

        failed = await post({**smallest(), "agent.json": {}})
        first = await post(with_messages(20))
        second = await post(with_messages(20))
        other = await post(with_messages(21))
        asked = await post(with_messages(20), name="b")
        assert failed.status_code == 422  # and the key is free again
        assert (first.status_code, second.status_code) == (201, 201)
        assert second.content == first.content
        assert second.headers["Idempotent-Replayed"] == "true"
        assert (other.status_code, asked.status_code) == (409, 409)
        assert rows(server)["agents"] == 1


async def test_tools_come_with_their_rules_and_what_can_not_is_reported(
    database: OneDatabase,
) -> None:
    values = smallest()
    schema = {"type": "object", "properties": {}}
    values["tools.jsonl"] = [
        {"name": "archival_memory_insert", "attached": False},
        {"name": "gone", "max_calls": 3},
        {"name": "hook", "approval": True,
         "definition": {"kind": "webhook", "description": "d", "parameters": schema,
                        "url": "https://example.org/x", "retries": 1, "timeout": 5}},
        {"name": "inside",
         "definition": {"kind": "webhook", "description": "d", "parameters": schema,
                        "url": "http://127.0.0.1/x"}},
        {"name": "wiki_find",
         "definition": {"kind": "mcp", "description": "d", "parameters": schema, "mcp_server": "wiki"}},
    ]  # fmt: skip
    async with serving(database, ScriptedModel()) as server:
        made = (await import_file(server, closed(values))).json()
        reported = {each["name"]: each["reason"] for each in made["not_carried"]}
        assert reported.keys() == {"gone", "hook", "inside", "wiki_find"}
        assert "secret" in reported["hook"]
        grants = server.rows(
            "SELECT name, attached, approval, max_calls FROM agent_tools ORDER BY 1"
        )
        assert grants == [
            ("archival_memory_insert", False, False, None),
            ("gone", True, False, 3),
            ("hook", True, True, None),
        ]
        again = opened(await export(server, made["agent"]["id"]))["tools.jsonl"]
        assert again == [
            each for each in values["tools.jsonl"] if each["name"] in {g[0] for g in grants}
        ]


async def test_what_waits_in_the_inbox_is_left_out_and_the_rest_is_whole(
    database: OneDatabase,
) -> None:
    held = Held(say("late"), asyncio.Event())
    answers = iter([say("first"), held])
    async with serving(database, ScriptedModel(lambda _prompt, _tools: next(answers))) as server:
        agent = await server.create_agent(name="sam")
        await server.say(agent, "one")
        waiting = asyncio.create_task(server.say(agent, "two"))
        await held.reached.wait()
        content = await export(server, agent)
        held.release.set()
        await waiting
        texts = [each["text"] for each in opened(content)["messages.jsonl"]]
        assert texts == ["one", "first"]
        made = (await import_file(server, content, name="b")).json()
        assert made["messages"] == 2


async def test_twenty_thousand_messages_move_in_bounded_memory(database: OneDatabase) -> None:
    values = with_messages(20_000)
    for number, message in enumerate(values["messages.jsonl"]):
        message["text"] = f"{number} " + "words " * 400
    content = closed(values)
    whole = sum(len(message["text"]) for message in values["messages.jsonl"])
    assert whole > 48_000_000
    assert len(content) < 4_000_000
    del values
    async with serving(database, ScriptedModel()) as server:
        tracemalloc.start()
        try:
            made = await import_file(server, content)
            assert made.status_code == 201, made.text
            imported = tracemalloc.get_traced_memory()[1]
            tracemalloc.reset_peak()
            out = await export(server, made.json()["agent"]["id"])
            exported = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert made.json()["messages"] == 20_000
        queue = (await server.get(f"{made.json()['agent']['id']}/context"))["queue"]
        assert len(queue) == 10
        assert len(opened(out)["messages.jsonl"]) == 20_000
    assert imported < 10_000_000
    assert exported < 10_000_000


async def test_an_agent_that_is_deleted_while_it_is_exported_is_in_the_file_whole(
    database: OneDatabase,
) -> None:
    async with serving(database, talkative()) as server:
        agent = await lived(server)
        at_once = asyncio.Semaphore(1)
        exporting = Export(
            server.services.database, DEFAULT_TENANT, UUID(agent), Contents(), at_once
        )
        pieces = exporting.pieces()
        got = await anext(pieces)
        await server.http.delete(f"/v1/agents/{agent}")
        async for piece in pieces:
            got += piece
        assert (await import_file(server, got)).status_code == 201
        gone = Export(server.services.database, DEFAULT_TENANT, UUID(agent), Contents(), at_once)
        with pytest.raises(NotFound):
            await anext(gone.pieces())


async def test_a_large_collection_comes_with_its_index_requested(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        made = (await import_file(server, closed(with_messages(1, 5_100)))).json()
        assert made["passages"] == 5_100
        assert server.rows("SELECT passage_count FROM collections") == [(5_100,)]
        waiting = server.rows(
            "SELECT task_name FROM procrastinate_jobs WHERE status = 'todo' ORDER BY task_name"
        )
        assert waiting == [("collection_upkeep",), ("index_messages",)]
        listed = await server.get(f"{made['agent']['id']}/archival", limit=100)
        assert [each["text"] for each in listed["items"]] == [f"passage {n}" for n in range(100)]


async def test_every_field_of_the_format_survives_an_import_and_an_export(
    database: OneDatabase,
) -> None:
    at = [f"2025-0{month}-02T03:04:05.678901Z" for month in range(1, 10)]
    values = with_messages(40, 2)
    values["agent.json"] = {
        "id": "019b0000-0000-7000-8000-000000000001", "name": "all", "model": "m", "system_prompt": "Be.",
        "options": {"must_reply": False, "timezone": "Asia/Tokyo"}, "metadata": {"a": [1, None]},
        "language": "german", "collection_description": "d", "collection_metadata": {"b": 2},
        "collections": [], "created_at": at[0], "updated_at": at[1],
        "state": {"done_turn": 4, "queue_start": 3000, "pressure_warned": True, "token_scale": 1.25,
                  "token_scale_model": "m", "memory_edited_at": at[2], "stats_messages": 30,
                  "stats_edited_at": at[3]},
    }  # fmt: skip
    values["sections.jsonl"] = [
        {"name": "b", "text": "two", "limit": 9, "description": "x", "read_only": True, "version": 2,
         "updated_at": at[4]},
        {"name": "a", "text": "", "limit": 5, "updated_at": at[5]},
    ]  # fmt: skip
    values["edits.jsonl"] = [
        {"section": "b", "version": 1, "text": "one", "actor": "api", "created_at": at[1]},
        {"section": "b", "version": 2, "text": "two", "actor": "tool", "own": True, "position": 1001,
         "restores": 1, "created_at": at[2]},
        {"section": "a", "version": 1, "text": "", "actor": "import", "created_at": at[3]},
    ]  # fmt: skip
    values["summaries.jsonl"] = [
        {"until": 2000, "text": "s", "tokens": 1, "evicted": 10, "method": "model", "outdated": True,
         "created_at": at[4]},
        {"until": 3000, "text": "It was about tea.", "tokens": 5, "evicted": 10, "method": "extractive",
         "failure": "f", "created_at": at[5]},
    ]  # fmt: skip
    values["turns.jsonl"][1] = {
        "turn": 2, "kind": "message", "state": "failed", "steps": 3, "attempts": 2, "stop_reason": "error",
        "error": {"code": "model_error"}, "prompt_tokens": 1, "completion_tokens": 2, "cached_tokens": 3,
        "idempotency_key": "k", "fingerprint": "f", "created_at": at[0], "started_at": at[1],
        "finished_at": at[2],
    }  # fmt: skip
    values["messages.jsonl"][1] |= {
        "thought": "hm",
        "expires_at": "2099-01-01T00:00:00Z",
        "chat": "a",
        "chat_note": "[event] chat: another.",
        "pictures": [{"digest": sha256(png()).hexdigest(), "media_type": "image/png", "width": 2, "height": 3,
                      "name": "cat.png"}],
        "call": {"id": "c", "name": "n", "arguments": {"z": 1, "a": {"y": [], "b": "ü"}}, "state": "failed",
                 "result": "r", "waits_for": "client", "answer": {"ok": True}, "created_at": at[3],
                 "finished_at": at[4]},
        "fields": {"model": "m", "message": {"reasoning_content": "hm"}, "tokens": 3,
                   "call": {"extra_content": {"google": {"thought_signature": "s"}}}},
    }  # fmt: skip
    values["passages.jsonl"][0] = {
        "id": "019b0000-0000-7000-8000-000000000002", "number": 7, "text": "p", "tags": ["t", "ü"],
        "metadata": {"deep": {"x": 1.5}}, "created_at": at[0], "updated_at": at[6],
        "expires_at": "2099-01-01T00:00:00Z",
    }  # fmt: skip
    values["passages.jsonl"][1] |= {
        "id": "019b0000-0000-7000-8000-000000000003",
        "number": 8,
        "updated_at": at[7],
    }
    values["timers.jsonl"] = [{"text": "t", "due": "2099-01-01T00:00:00Z"}]
    picture = {"digest": sha256(png()).hexdigest(), "data": b64encode(png()).decode()}
    values["pictures.jsonl"] = [picture]
    async with serving(database, ScriptedModel()) as server:
        made = await import_file(server, closed(values), keep_ids=True)
        assert made.status_code == 201, made.text
        agent = made.json()["agent"]["id"]
        out = opened(await export(server, agent, history=True))
        parts = (await server.get(f"{agent}/context"))["parts"]
    assert list(out["messages.jsonl"][1]["call"]["arguments"]) == ["z", "a"]
    for name in values.keys() - {"manifest.json"}:
        assert out[name] == values[name], name
    assert any("It was about tea." in part["text"] for part in parts)
    used = {
        name for record in (*LISTS.values(), AgentRecord, State) for name in record.model_fields
    }
    written = set(re.findall(r"'(\w+)': ", repr(out)))
    assert used - written <= {"attached", "approval", "first", "terminal", "required", "max_calls",
                              "definition", "vector"}  # fmt: skip


async def test_an_agent_that_was_counted_in_bytes_is_counted_in_tokens_when_it_comes(
    database: OneDatabase,
) -> None:
    values = with_messages(20)
    values["agent.json"]["state"] |= {"queue_start": 2000, "token_scale": 0.25}
    for message in values["messages.jsonl"]:
        message["tokens"] = 401
    async with serving(database, talkative()) as server:
        answer = await import_file(server, closed(values))
        assert answer.status_code == 201, answer.text
        assert server.rows("SELECT tokens, count(*) FROM messages GROUP BY 1 ORDER BY 1") == [
            (101, 10),
            (401, 10),
        ]
        assert server.rows("SELECT token_scale FROM agent_state") == [(None,)]


async def test_the_reply_mode_of_a_version_2_file_is_read_by_its_old_name(
    database: OneDatabase,
) -> None:
    older = smallest()
    older["manifest.json"]["version"] = 2
    older["agent.json"]["options"] = {"protocol": "chat"}
    async with serving(database, ScriptedModel()) as server:
        imported = (await import_file(server, closed(older))).json()["agent"]
        again = opened(await export(server, imported["id"]))
        stored = server.rows("SELECT options ->> 'protocol' FROM agents")
    assert imported["options"]["reply_mode"] == "chat"
    assert stored == [("chat",)]
    assert again["manifest.json"]["version"] == VERSION
    options = again["agent.json"]["options"]
    assert (options["reply_mode"], "protocol" in options) == ("chat", False)
