"""Chats with other assistants become an agent's history."""

import io
import json
import zipfile
from typing import Any

import pytest

from memserver.agent_files import chats
from memserver.testing.scripted import ScriptedModel, say
from tests.support.server import OneDatabase, Server, serving


def node(
    name: str, parent: str | None, role: str, *parts: Any, at: float | None, **more: Any
) -> Any:
    message = {
        "id": name,
        "author": {"role": role, "name": None, "metadata": {}},
        "create_time": at,
        "content": {"content_type": "text", "parts": list(parts)},
        "recipient": "all",
        "metadata": {},
        **more,
    }
    return {"id": name, "message": message, "parent": parent, "children": []}


def chatgpt() -> list[dict[str, Any]]:
    hidden = {"is_visually_hidden_from_conversation": True}
    instructions = {"content_type": "user_editable_context", "user_profile": "A cellist."}
    picture = {"content_type": "image_asset_pointer", "asset_pointer": "sediment://a"}
    files = {"attachments": [{"name": "otter.png"}, {"name": "otters.pdf"}]}
    thoughts = {"content_type": "thoughts", "thoughts": [{"summary": "s", "content": "Hm."}]}
    nodes = [
        {"id": "root", "message": None, "parent": None, "children": ["s"]},
        node("s", "root", "system", "", at=None, metadata=hidden),
        node("p", "s", "user", at=None, metadata=hidden, content=instructions),
        node("u1", "p", "user", "Where do otters live?", at=1700000000.5),
        node("a0", "u1", "assistant", "In the sea.", at=1700000001.0),
        node("t", "u1", "assistant", at=1700000001.5, content=thoughts),
        node("c", "t", "assistant", "search()", at=1700000001.6, recipient="web"),
        node("w", "c", "tool", "otters", at=1700000001.7),
        node("a1", "w", "assistant", "In rivers.", at=1700000002.0),
        node("u2", "a1", "user", picture, "And this one?", at=None, metadata=files),
    ]
    early = [node("x", None, "user", "Good morning.", at=1600000000.0)]
    return [
        {"title": "Otters", "id": "c2", "create_time": 1700000000.0, "current_node": "u2",
         "mapping": {each["id"]: each for each in nodes}},
        {"title": "Hello", "id": "c1", "create_time": 1600000000.0, "current_node": "x",
         "mapping": {each["id"]: each for each in early}},
    ]  # fmt: skip


def claude() -> list[dict[str, Any]]:
    said = {"uuid": "m1", "sender": "human", "text": "Read it.", "created_at": "2024-05-01T10:00:00.5Z",
            "content": [{"type": "text", "text": "Read it."}], "files": [{"file_name": "a.png"}],
            "attachments": [{"file_name": "note.txt", "extracted_content": "Buy tea."}]}  # fmt: skip
    answered = {"uuid": "m2", "sender": "assistant", "text": "Tea.", "created_at": "2024-05-01T10:00:05Z",
                "content": [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Tea."},
                            {"type": "tool_use", "name": "f", "input": {}}], "attachments": [], "files": []}  # fmt: skip
    return [{"uuid": "c", "name": "Tea", "created_at": "2024-05-01T10:00:00Z", "chat_messages": [said, answered]}]  # fmt: skip


def zipped(value: object, name: str = "conversations.json") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("memories.json", "{}")
        archive.writestr("pictures/", "")
        archive.writestr("pictures/a.png", "")
        archive.writestr(name, json.dumps(value))
    return file.getvalue()


async def import_file(server: Server, content: bytes, **query: Any) -> dict[str, Any]:
    answer = await server.http.post("/v1/agents/import", content=content, params=query)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def history(server: Server, agent: str) -> list[tuple[str, str, str]]:
    items = (await server.get(f"{agent}/messages", order="asc"))["items"]
    return [(each["role"], each["text"], each["created_at"][:19]) for each in items]


OTTERS = [
    ("user", "Good morning.", "2020-09-13T12:26:40"),
    ("user", "Where do otters live?", "2023-11-14T22:13:20"),
    ("assistant", "In rivers.", "2023-11-14T22:13:22"),
    ("user", "And this one?", "2023-11-14T22:13:22"),
]


async def test_chatgpts_export_is_a_history_of_the_branches_that_were_shown_last(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel(lambda _prompt, _tools: say("Yes."))) as server:
        made = await import_file(server, zipped(chatgpt()))
        agent = made["agent"]["id"]
        assert (made["agent"]["name"], made["messages"]) == ("ChatGPT", 4)
        assert await history(server, agent) == OTTERS
        assert {each["reason"] for each in made["not_carried"]} == {
            f"{chats.TITLES}: 2.",
            f"{chats.OTHER_BRANCH}: 1.",
            f"{chats.EMPTY}: 1.",
            f"{chats.THOUGHTS}: 1.",
            f"{chats.TOOL_CALLS}: 1.",
            f"{chats.OTHER_ROLE}: 1.",
            f"{chats.NO_TEXT}: 2.",
            f"{chats.NO_TIME}: 1.",
            f"{chats.HIDDEN}: 1.",
            f"{chats.NO_CHATS}.",
            "Pictures and other files of the archive: 1.",
        }
        assert [each["name"] for each in made["not_carried"] if each["kind"] == "file"] == [
            "memories.json",
            "",
        ]
        found = await server.get(f"{agent}/recall/search", query="rivers")
        assert [each["text"] for each in found["items"]] == ["In rivers."]
        assert (await server.say(agent, "Are you there?"))["text"] == "Yes."
        parts = await import_file(server, zipped(chatgpt(), "a/conversations-000.json"), name="b")
        assert parts["messages"] == 4


async def test_claudes_export_comes_into_the_history_of_an_agent_that_is_there(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel(lambda _prompt, _tools: say("Yes."))) as server:
        agent = await server.create_agent(name="sam")
        await server.say(agent, "Hello.")
        for _ in range(2):
            answer = await server.http.post(
                "/v1/agents/import",
                params={"into": agent},
                content=zipped(claude()),
                headers={"Idempotency-Key": "once"},
            )
            assert answer.status_code == 201, answer.text
        await server.say(agent, "Are you there?")
        said = await history(server, agent)
        assert [text for _, text, _ in said[2:4]] == ["Read it.\n[note.txt]\nBuy tea.", "Tea."]
        assert len(said) == 6
        assert said[2][2] == "2024-05-01T10:00:00"
        assert {each["reason"] for each in answer.json()["not_carried"]} == {
            f"{chats.TITLES}: 1.",
            f"{chats.NO_TEXT}: 1.",
            f"{chats.THOUGHTS}: 1.",
            f"{chats.TOOL_CALLS}: 1.",
            f"{chats.NO_CHATS}.",
            "Pictures and other files of the archive: 1.",
        }


MESSAGES = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": [{"type": "text", "text": "Hi."}], "created_at": 1700000000},
    {"role": "assistant", "content": None, "refusal": "No."},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "Hello!"}]},
]


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(MESSAGES),
        json.dumps({"messages": MESSAGES}, indent=1),
        json.dumps([{"messages": MESSAGES}]),
        "\n".join(map(json.dumps, MESSAGES)),
    ],
    ids=["list", "object", "objects", "lines"],
)
async def test_messages_as_openais_api_takes_them_are_a_history(
    database: OneDatabase, content: str
) -> None:
    async with serving(database, ScriptedModel()) as server:
        made = await import_file(server, content.encode(), name="sam")
        assert await history(server, made["agent"]["id"]) == [
            ("user", "Hi.", "2023-11-14T22:13:20"),
            ("assistant", "No.", "2023-11-14T22:13:20"),
            ("assistant", "Hello!", "2023-11-14T22:13:20"),
        ]
        assert {each["reason"] for each in made["not_carried"]} == {
            f"{chats.OTHER_ROLE}: 1.",
            f"{chats.NO_TIME}: 2.",
        }


async def test_what_is_no_chat_is_refused_and_changes_nothing(database: OneDatabase) -> None:
    cut = json.dumps(chatgpt())[:-40].encode()
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent(name="sam")
        codes = []
        for content, query in (
            (b"[1, 2]", {}),
            (b'[{"what": "ever"}]', {"into": agent}),
            (cut, {"into": agent}),
            (b'{"agents": [{"name": "x"}]}', {"into": agent}),
            (json.dumps(MESSAGES).encode(), {"into": agent, "name": "x"}),
        ):
            answer = await server.http.post("/v1/agents/import", content=content, params=query)
            codes.append((answer.status_code, answer.json()["error"]["code"]))
        assert codes == [
            (415, "agent_file_unsupported"),
            (415, "agent_file_unsupported"),
            (422, "agent_file_corrupt"),
            (415, "agent_file_unsupported"),
            (422, "invalid_input"),
        ]
        assert server.rows("SELECT count(*) FROM messages") == [(0,)]
        assert server.rows("SELECT count(*) FROM agents") == [(1,)]
