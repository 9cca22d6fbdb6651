"""Files that can't be taken in, and what others own, leave nothing."""

from typing import Any
from uuid import uuid4

import pytest

from memserver.agent_files.records import VERSION
from memserver.testing.scripted import ScriptedModel
from tests.support.agent_files import closed, members, packed, smallest, with_messages
from tests.support.moving import export, import_file, lived, rows, talkative
from tests.support.server import OneDatabase, serving


def changed(path: str, *keys: Any, to: Any) -> bytes:
    values = with_messages(30, 3)
    values["sections.jsonl"] = [{"name": "human", "text": "x", "limit": 10}]
    values["edits.jsonl"] = [
        {
            "section": "human",
            "version": 1,
            "text": "x",
            "actor": "api",
            "created_at": "2026-01-01T00:00:00Z",
        }
    ]
    place = values[path]
    for each in keys[:-1]:
        place = place[each]
    place[keys[-1]] = to
    return closed(values)


def without_a_line() -> bytes:
    parts = members(closed(with_messages(30)))
    parts["messages.jsonl"] = parts["messages.jsonl"][
        : parts["messages.jsonl"].rindex(b'{"position')
    ]
    return packed(parts)


def flipped() -> bytes:
    content = bytearray(closed(with_messages(300)))
    content[len(content) // 3] ^= 0xFF
    return bytes(content)


CORRUPT: dict[str, bytes] = {
    "cut off": closed(with_messages(30))[:-40],
    "cut off early": closed(with_messages(30))[:50],
    "a flipped bit": flipped(),
    "a line too few": without_a_line(),
    "no agent": packed({"manifest.json": b'{"format": "memserver-agent", "version": 1}'}),
    "no manifest": packed({"a.txt": b"x"}),
    "no JSON": packed({**members(closed(smallest())), "agent.json": b"{"}),
    "no number": packed(
        {**members(closed(smallest())), "agent.json": b'{"name": "a", "state": {"done_turn": NaN}}'}
    ),
    "deep": packed({**members(closed(smallest())), "agent.json": b"[" * 100_000}),
    "version 0": changed("manifest.json", "version", to=0),
    "another format": changed("manifest.json", "format", to="other"),
    "unknown field": changed("agent.json", "colour", to="red"),
    "unknown option": changed("agent.json", "options", to={"colour": "red"}),
    "bad zone": changed("agent.json", "options", to={"timezone": "Moon"}),
    "same position": changed("messages.jsonl", 5, "position", to=1000),
    "a position after all": changed("messages.jsonl", 5, "position", to=9_000_000),
    "a position before all": changed("messages.jsonl", 5, "position", to=1),
    "a role": changed("messages.jsonl", 5, "role", to="tool"),
    "a time without zone": changed("messages.jsonl", 5, "created_at", to="2026-01-01"),
    "an open call": changed(
        "messages.jsonl", 5, "call",
        to={"id": "c", "name": "n", "arguments": {}, "state": "pending", "result": "",
            "created_at": "2026-01-01T00:00:00Z"},
    ),
    "a turn after all": changed("turns.jsonl", 0, "turn", to=77),
    "a turn twice": changed("turns.jsonl", 0, "turn", to=2),
    "a section too long": changed("sections.jsonl", 0, "limit", to=0),
    "a text over the limit": changed("sections.jsonl", 0, "text", to="x" * 11),
    "an edit of no section": changed("edits.jsonl", 0, "section", to="other"),
    "another last version": changed("edits.jsonl", 0, "text", to="y"),
    "infinite": packed(
        {
            **members(changed("agent.json", "name", to="a")),
            "tools.jsonl": b'{"name": "recall_memory_search", "max_calls": 1e999}\n',
        }
    ),
    "an infinite number in metadata": packed(
        {**members(closed(smallest())),
         "agent.json": b'{"name": "a", "state": {"done_turn": 0}, "metadata": {"x": 1e999}}'}
    ),
    "metadata without an end": changed("agent.json", "metadata", to={"x": "y" * 200_000}),
    "a passage's metadata without an end": changed(
        "passages.jsonl", 0, "metadata", to={"x": "y" * 200_000}
    ),
    "tools without an end": changed(
        "tools.jsonl", slice(0, 0), to=[{"name": f"tool{number}", "attached": False} for number in range(1001)]
    ),
    "an empty passage": changed("passages.jsonl", 0, "text", to=""),
    "a tool of no name": changed(
        "tools.jsonl", slice(0, 0), to=[{"name": "no name", "definition": {"kind": "client", "description": "d",
                                                    "parameters": {"type": "object", "properties": {}}}}],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CORRUPT)
async def test_a_corrupt_file_is_an_error_and_leaves_nothing(
    database: OneDatabase, case: str
) -> None:
    async with serving(database, ScriptedModel()) as server:
        before = rows(server)
        answer = await import_file(server, CORRUPT[case])
        assert answer.status_code == 422, answer.text
        assert answer.json()["error"]["code"] == "agent_file_corrupt"
        assert rows(server) == before


async def test_files_that_are_newer_too_large_or_none_have_codes_of_their_own(
    database: OneDatabase,
) -> None:
    newer = smallest()
    newer["manifest.json"] = {"format": "memserver-agent", "version": VERSION + 1, "colour": "red"}
    newer["agent.json"] = {"what": "ever"}
    bomb = with_messages(1)
    bomb["messages.jsonl"][0]["text"] = "x" * 200_000
    async with serving(database, ScriptedModel(), import_max_bytes=100_000) as server:
        answers = [
            await import_file(server, closed(newer)),
            await import_file(server, b"A text."),
            await import_file(server, b""),
            await import_file(server, closed(bomb)),
            await server.http.post("/v1/agents/import", content=b"PK" + bytes(200_000)),
        ]
        assert [(each.status_code, each.json()["error"]["code"]) for each in answers] == [
            (422, "agent_file_newer"),
            (415, "agent_file_unsupported"),
            (415, "agent_file_unsupported"),
            (413, "agent_file_too_large"),
            (413, "request_too_large"),
        ]
        assert rows(server)["agents"] == 0


async def test_names_and_ids_that_are_taken_are_conflicts(database: OneDatabase) -> None:
    async with serving(database, talkative()) as server:
        content = await export(server, await lived(server))
        before = rows(server)
        name = await import_file(server, content)
        ids = await import_file(server, content, keep_ids=True, name="b")
        assert (name.status_code, ids.status_code) == (409, 409)
        assert "name" in name.json()["error"]["message"]
        assert "id" in ids.json()["error"]["message"]
        assert rows(server) == before


async def test_another_tenants_agent_is_not_exported_and_its_things_are_not_attached(
    database: OneDatabase,
) -> None:
    async with serving(database, talkative()) as server:
        await server.operate()
        agent = await lived(server)
        content = await export(server, agent, vectors=True)
        other = await server.create_tenant("other")
        refused = await server.http.get(f"/v1/agents/{agent}/export", headers=other)
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "not_found")
        made = await server.http.post("/v1/agents/import", content=content, headers=other)
        assert made.status_code == 201, made.text
        assert [(each["kind"], each["name"]) for each in made.json()["not_carried"]] == [
            ("collection", "rules")
        ]
        assert server.rows("SELECT tenant, count(*) FROM tools GROUP BY tenant ORDER BY 1") == [
            ("default", 1),
            ("other", 1),
        ]
        reader = await server.create_key(scopes=["read"])
        may_not = await server.http.post("/v1/agents/import", content=content, headers=reader)
        assert may_not.status_code == 403


async def test_whether_an_id_is_another_tenants_or_free_the_answer_is_the_same(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel()) as server:
        await server.operate()
        other = await server.create_tenant("other")
        files = []
        for name in ("taken", "free"):
            values = smallest(name)
            values["agent.json"]["id"] = str(uuid4())
            files.append(closed(values))
        assert (await import_file(server, files[0], keep_ids=True)).status_code == 201
        answers = [
            await server.http.post(
                "/v1/agents/import?keep_ids=true", content=content, headers=other
            )
            for content in files
        ]
    assert [each.status_code for each in answers] == [403, 403]
    assert answers[0].json() == answers[1].json()
