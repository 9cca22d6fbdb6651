"""What can't be a document, and what of a file could not be read, is said."""

import zipfile
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from memserver.testing.scripted import ScriptedModel, say
from tests.support.documents import FILES, MARKDOWN, ingest
from tests.support.server import OneDatabase, serving


@pytest.mark.parametrize(
    ("content", "name", "status", "code"),
    [
        (b"", "a.txt", 422, "document_empty"),
        (b"not a PDF", "a.pdf", 422, "document_corrupt"),
        (b"\x89PNG\r\n\x1a\n", "a.png", 415, "document_unsupported"),
        (b"x" * 5001, "a.txt", 413, "document_too_large"),
    ],
)
@pytest.mark.parametrize("form", [True, False])
async def test_what_can_not_be_a_document_is_refused_at_once(
    database: OneDatabase, content: bytes, name: str, status: int, code: str, form: bool
) -> None:
    async with serving(database, ScriptedModel(), document_max_bytes=5000) as server:
        agent = await server.create_agent()
        path = f"/v1/agents/{agent}/documents"
        if form:
            answer = await server.http.post(path, files={"file": (name, content)})
        else:
            answer = await server.http.post(path, content=content, params={"name": name})
        listed = (await server.http.get(path)).json()["items"]
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["code"] == code
    assert listed == []


@pytest.mark.parametrize("length", ["declared", "not declared"])
async def test_a_body_over_the_limit_is_refused_before_all_of_it_is_read(
    database: OneDatabase, length: str
) -> None:
    sent = 0

    async def parts() -> Any:
        nonlocal sent
        for _ in range(1000):
            sent += 1
            yield b"x" * 1000

    headers = {"Content-Length": "1000000"} if length == "declared" else {}
    async with serving(database, ScriptedModel(), document_max_bytes=5000) as server:
        agent = await server.create_agent()
        answer = await server.http.post(
            f"/v1/agents/{agent}/documents", content=parts(), headers=headers
        )
    assert sent < 10
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "document_too_large"
    assert "5000 bytes" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("encrypted.pdf", "document_encrypted"),
        ("scanned.pdf", "document_without_text"),
        ("blank.pdf", "document_empty"),
    ],
)
async def test_what_is_wrong_with_a_file_stands_on_the_document_and_the_agent_stays_usable(
    database: OneDatabase, name: str, code: str
) -> None:
    content = (FILES / name).read_bytes()
    async with serving(database, ScriptedModel([say("still here")])) as server:
        agent = await server.create_agent()
        document = await ingest(server, f"agents/{agent}", content, name=name)
        text = await server.http.get(f"/v1/documents/{document['id']}/text")
        file = await server.http.get(f"/v1/documents/{document['id']}/file")
        answer = await server.say(agent, "hello?")
    assert document["state"] == "failed"
    assert document["error"]["code"] == code
    assert document["finished_at"] is not None
    assert text.status_code == 409
    assert file.content == content
    assert answer["text"] == "still here"


async def test_what_could_not_be_read_in_a_document_is_reported(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        content = (FILES / "half_scanned.pdf").read_bytes()
        document = await ingest(server, f"agents/{agent}", content)
    assert (document["state"], document["pages"]) == ("done", 2)
    assert document["warnings"] == ["No text on 1 of 2 pages: 2."]


@pytest.mark.parametrize(
    ("query", "files", "message"),
    [
        ({"metadata": "{"}, [("file", b"x")], "metadata: not valid JSON"),
        ({"metadata": "[]"}, [("file", b"x")], "metadata: not a JSON object"),
        ({}, [("other", b"x")], "file: the form must have one file"),
        ({}, [("file", b"x"), ("file", b"y")], "file: the form must have one file"),
        ({"tags": [""]}, [("file", b"x")], "tags"),
    ],
)
async def test_a_wrong_request_learns_what_is_wrong(
    database: OneDatabase, query: dict[str, Any], files: list[tuple[str, bytes]], message: str
) -> None:
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        answer = await server.http.post(
            f"/v1/agents/{agent}/documents",
            params=query,
            files=[(part, ("a.txt", content)) for part, content in files],
        )
    assert answer.status_code == 422
    assert answer.json()["error"]["code"] == "invalid_input"
    assert message in answer.json()["error"]["message"]


async def test_a_form_that_breaks_off_is_refused(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        answer = await server.http.post(
            f"/v1/agents/{agent}/documents",
            content=b"no boundary",
            headers={"Content-Type": "multipart/form-data"},
        )
    assert answer.status_code == 422
    assert answer.json()["error"]["code"] == "invalid_input"


@pytest.mark.parametrize("place", ["agents", "collections", "documents"])
async def test_what_is_not_there_is_not_found(database: OneDatabase, place: str) -> None:
    async with serving(database, ScriptedModel()) as server:
        missing = f"/v1/{place}/{uuid4()}"
        if place == "documents":
            answers = [
                await server.http.get(missing),
                await server.http.get(f"{missing}/text"),
                await server.http.get(f"{missing}/file"),
                await server.http.post(f"{missing}/cancel"),
                await server.http.post(f"{missing}/resume"),
                await server.http.delete(missing),
            ]
        else:
            answers = [
                await server.http.get(f"{missing}/documents"),
                await server.http.post(f"{missing}/documents", content=b"x"),
            ]
    assert [answer.status_code for answer in answers] == [404] * len(answers)


async def test_a_docx_bomb_fails_alone(database: OneDatabase, tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.docx"
    with (
        zipfile.ZipFile(FILES / "harbour.docx") as good,
        zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name in good.namelist():
            archive.writestr(name, good.read(name))
        archive.writestr("word/numbering.xml", b"<x>" + b"<x/>" * 4_000_000 + b"</x>")
    async with serving(database, ScriptedModel(), document_memory_mb=200) as server:
        agent = await server.create_agent()
        bad = await ingest(server, f"agents/{agent}", bomb.read_bytes())
        good_one = await ingest(server, f"agents/{agent}", MARKDOWN)
    assert (bad["state"], bad["error"]["code"]) == ("failed", "document_too_costly")
    assert good_one["state"] == "done"
