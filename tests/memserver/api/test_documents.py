"""Documents through the REST API: from a file to passages that say where they come from."""

import asyncio
import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from memserver.embeddings.base import Vector
from memserver.errors import EmbeddingError
from memserver.memory import documents as ingestion
from memserver.storage.jobs import JobRun
from memserver.testing.hashing_embedder import HashingEmbedder
from memserver.testing.scripted import Call, ScriptedModel, say
from tests.support.deaf import deaf
from tests.support.server import OneDatabase, Server, serving

FILES = Path(__file__).parents[2] / "data" / "documents"
MARKDOWN = b"""# Harbour

Boats need a lamp.

## Fees

Small boats pay three coins a night.
"""
RECORDS = b"""{"title": "Roses", "text": "They smell sweet.", "tags": ["plant"], "metadata": {"id": 7}}
{"title": "Ravens", "text": "They remember faces."}
"""
LONG = "\n".join(f"Fact {number} is about thing{number}." for number in range(400)).encode()


async def post(server: Server, place: str, content: bytes, **query: Any) -> dict[str, Any]:
    answer = await server.http.post(f"/v1/{place}/documents", content=content, params=query)
    assert answer.status_code == 202, answer.text
    document: dict[str, Any] = answer.json()
    return document


async def ingest(server: Server, place: str, content: bytes, **query: Any) -> dict[str, Any]:
    document = await post(server, place, content, **query)
    await server.run_jobs()
    return await state(server, document["id"])


async def state(server: Server, document_id: str) -> dict[str, Any]:
    answer = await server.http.get(f"/v1/documents/{document_id}")
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


async def passages(server: Server, agent: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    page = await server.get(f"{agent}/archival", limit=100)
    items += page["items"]
    while page["next"]:
        page = await server.get(f"{agent}/archival", limit=100, after=page["next"])
        items += page["items"]
    return items


async def best(server: Server, agent: str, query: str) -> dict[str, Any]:
    found = await server.get(f"{agent}/archival/search", query=query)
    result: dict[str, Any] = found["items"][0]
    return result


@pytest.mark.parametrize(
    ("name", "content", "kind", "query", "text", "metadata"),
    [
        ("a.txt", b"Whales sing. Owls hoot.", "text", "owls", "Owls hoot.", {}),
        ("a.md", MARKDOWN, "markdown", "coins night", "Small boats", {"heading": "Harbour > Fees"}),
        (
            "a.html",
            b"<html><body><h1>Sky</h1><p>Blue.</p><h1>Sea</h1><p>Deep water.</p></body></html>",
            "html",
            "deep water",
            "Deep water.",
            {"heading": "Sea"},
        ),
        (
            "a.pdf",
            (FILES / "two_pages.pdf").read_bytes(),
            "pdf",
            "white roses tower",
            "white roses",
            {"page": 1, "page_end": 2},
        ),
        (
            "a.docx",
            (FILES / "harbour.docx").read_bytes(),
            "docx",
            "dinghy one coin",
            "dinghy",
            {"heading": "Harbour rules > Fees"},
        ),
        (
            "a.jsonl",
            RECORDS,
            "jsonl",
            "smell sweet",
            "They smell sweet.",
            {"record": 1, "heading": "Roses", "id": 7},
        ),
    ],
)
async def test_a_file_of_each_kind_becomes_passages_that_say_where_they_come_from(
    database: OneDatabase,
    name: str,
    content: bytes,
    kind: str,
    query: str,
    text: str,
    metadata: dict[str, Any],
) -> None:
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        form = await server.http.post(
            f"/v1/agents/{agent}/documents",
            files={"file": (name, content)},
            params={"tags": ["mine", "new"], "metadata": json.dumps({"team": "a"})},
        )
        assert form.status_code == 202, form.text
        waiting = form.json()
        await server.run_jobs()
        done = await state(server, waiting["id"])
        found = await best(server, agent, query)
        whole = (await server.http.get(f"/v1/documents/{waiting['id']}/text")).json()["text"]
        file = await server.http.get(f"/v1/documents/{waiting['id']}/file")
    assert waiting["state"] == "waiting"
    assert (done["name"], done["kind"], done["state"]) == (name, kind, "done")
    assert done["chunks_done"] == done["chunks_total"] > 0
    assert done["characters"] == len(whole)
    assert file.content == content
    assert text in found["text"]
    source = found["metadata"]
    assert source["document"] == done["id"]
    assert source["document_name"] == name
    assert found["text"] == whole[source["start"] : source["end"]]
    assert source.items() >= {"team": "a", **metadata}.items()
    assert {"mine", "new"} <= set(found["tags"])


async def test_the_charset_of_the_request_or_of_the_forms_part_counts(
    database: OneDatabase,
) -> None:
    content = "Ėjau per ąžuolyną.".encode("cp1257")
    kind = "text/plain; charset=windows-1257"
    async with serving(database, ScriptedModel()) as server:
        path = f"/v1/agents/{await server.create_agent()}/documents"
        posted = [
            await server.http.post(path, content=content, headers={"Content-Type": kind}),
            await server.http.post(path, files={"file": ("a.txt", content, kind)}),
            await server.http.post(path, content=content),
        ]
        await server.run_jobs()
        ids = [answer.json()["id"] for answer in posted]
        texts = [(await server.http.get(f"/v1/documents/{id}/text")).json()["text"] for id in ids]
        warnings = [(await state(server, id))["warnings"] for id in ids]
    assert texts[:2] == [content.decode("cp1257")] * 2
    assert warnings[:2] == [[], []]
    assert ["guessed" in warning for warning in warnings[2]] == [True]


async def test_what_an_agent_finds_in_a_document_is_cited(database: OneDatabase) -> None:
    search = Call("archival_memory_search", {"query": "coins night", "request_heartbeat": True})
    async with serving(database, ScriptedModel([search, say("three coins")])) as server:
        agent = await server.create_agent()
        await ingest(server, f"agents/{agent}", MARKDOWN, name="rules.md")
        await ingest(
            server, f"agents/{agent}", (FILES / "two_pages.pdf").read_bytes(), name="light.pdf"
        )
        answer = await server.say(agent, "What does a night cost?")
    result = answer["messages"][0]["tool_call"]["result"]
    assert ", rules.md, Harbour > Fees] ## Fees Small boats pay" in result
    assert ", light.pdf, pages 1-2] The lighthouse" in result  # nothing of it matches


async def test_the_page_that_is_cited_is_the_one_with_the_match(database: OneDatabase) -> None:
    asked = {"lighthouse": 1, "The white roses": 2, "keeper of the white tower": 2}
    calls = [
        Call("archival_memory_search", {"query": query, "request_heartbeat": True})
        for query in asked
    ]
    async with serving(database, ScriptedModel([*calls, say("Done.")])) as server:
        agent = await server.create_agent()
        pdf = (FILES / "two_pages.pdf").read_bytes()
        await ingest(server, f"agents/{agent}", pdf, name="light.pdf")
        answer = await server.say(agent, "Look!")
        found = [await best(server, agent, query) for query in asked]
        # As passages of older versions are, which don't say where a page begins.
        server.rows("UPDATE passages SET metadata = metadata - 'page_starts' RETURNING 1")
        older = await best(server, agent, "white roses")
    results = [message["tool_call"]["result"] for message in answer["messages"][:-1]]
    for result, item, page in zip(results, found, asked.values(), strict=True):
        assert f", light.pdf, page {page}] The lighthouse" in result
        assert (item["page"], item["label"]) == (page, "p1")
    assert [item["excerpt"].count("**") for item in found] == [2, 2, 6]
    assert "garden of **white roses** behind" in older["excerpt"]
    assert older["page"] is None


async def test_a_collections_documents_are_listed_and_its_agents_find_them(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        own = server.rows("SELECT collection_id FROM agents")[0][0]
        first = await ingest(server, f"collections/{own}", MARKDOWN, name="one.md")
        second = await ingest(server, f"agents/{agent}", b"Other words.", name="two.txt")
        page = (await server.http.get(f"/v1/collections/{own}/documents?limit=1")).json()
        rest = (
            await server.http.get(
                f"/v1/agents/{agent}/documents", params={"limit": 1, "after": page["next"]}
            )
        ).json()
        found = await best(server, agent, "three coins")
    assert first["collection_id"] == str(own)
    assert [item["id"] for item in page["items"] + rest["items"]] == [first["id"], second["id"]]
    assert rest["next"] is None
    assert found["metadata"]["document"] == first["id"]


async def test_several_agents_find_what_is_in_a_shared_collections_document(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel()) as server:
        shared = (await server.http.post("/v1/collections", json={"name": "rules"})).json()["id"]
        readers = [await server.create_agent() for _ in range(2)]
        stranger = await server.create_agent()
        for agent in readers:
            await server.http.put(f"/v1/agents/{agent}/collections/{shared}")
        document = await ingest(server, f"collections/{shared}", MARKDOWN, name="rules.md")
        found = [await best(server, agent, "three coins a night") for agent in readers]
        elsewhere = await server.get(f"{stranger}/archival/search", query="three coins a night")
        only = await server.http.get(
            f"/v1/agents/{readers[0]}/archival/search",
            params={"query": "x", "metadata": json.dumps({"document": document["id"]})},
        )
        assert (await server.http.delete(f"/v1/collections/{shared}")).status_code == 204
        left = server.rows("SELECT count(*) FROM document_texts")
    assert [each["metadata"]["document"] for each in found] == [document["id"]] * 2
    assert elsewhere["items"] == []
    assert only.json()["total"] == document["chunks_total"]
    assert left == [(0,)]


async def test_every_fact_of_a_long_document_is_found_and_its_passages_are_in_order(
    database: OneDatabase,
) -> None:
    async with serving(
        database, ScriptedModel(), chunk_tokens=32, chunk_overlap=8, embedder=HashingEmbedder(4000)
    ) as server:
        agent = await server.create_agent()
        document = await ingest(server, f"agents/{agent}", LONG, name="facts.txt")
        stored = await passages(server, agent)
        for number in (0, 57, 399):
            found = await best(server, agent, f"Fact {number} is about thing{number}")
            assert f"thing{number}." in found["text"]
        counted = await server.get(f"{agent}/archival/search", query="x")
    assert document["state"] == "done"
    assert [item["metadata"]["chunk"] for item in stored] == list(range(1, len(stored) + 1))
    assert len(stored) == document["chunks_total"] == counted["total"]


async def test_a_text_longer_than_the_embedder_reads_is_found_by_its_tail(
    database: OneDatabase,
) -> None:
    long = " ".join(["filler."] * 400) + " The password is swordfish."
    note = " ".join(["Nothing here."] * 140) + " Her dog is called Biscuit."
    insert = Call("archival_memory_insert", {"content": note, "request_heartbeat": True})
    async with serving(database, ScriptedModel([insert, say("kept")])) as server:
        agent = await server.create_agent()
        answer = await server.http.post(
            f"/v1/agents/{agent}/archival",
            json={"passages": [{"text": long, "tags": ["t"], "metadata": {"a": 1}}, {"text": "s"}]},
        )
        await server.say(agent, "keep it")
        swordfish = await best(server, agent, "password swordfish")
        biscuit = await best(server, agent, "dog called Biscuit")
    *parts, short = answer.json()["items"]
    assert [part["metadata"]["part"] for part in parts] == [1, 2]
    assert all(part["metadata"]["a"] == 1 and part["tags"] == ["t"] for part in parts)
    assert all(len(part["text"].split()) <= 256 for part in parts)
    assert short["metadata"] == {}
    assert swordfish["id"] == parts[-1]["id"]
    assert biscuit["text"].endswith("Her dog is called Biscuit.")


async def test_a_document_is_deleted_with_its_passages_and_nothing_else(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        gone = await ingest(server, f"agents/{agent}", MARKDOWN)
        kept = await ingest(server, f"agents/{agent}", RECORDS)
        answer = await server.http.delete(f"/v1/documents/{gone['id']}")
        again = await server.http.delete(f"/v1/documents/{gone['id']}")
        stored = await passages(server, agent)
        total = (await server.get(f"{agent}/archival/search", query="x"))["total"]
        vectors = server.rows("SELECT vectors_table FROM collections")[0][0]
        left = server.rows(f"SELECT count(*) FROM {vectors}")
        files = server.rows("SELECT count(*) FROM document_files")
    assert answer.status_code == 204
    assert again.status_code == 404
    assert {item["metadata"]["document"] for item in stored} == {kept["id"]}
    assert total == len(stored) == left[0][0] == 2
    assert files == [(1,)]


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


async def test_the_same_content_is_stored_once_if_the_caller_wants_that(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel()) as server:
        agent, other = await server.create_agent(), await server.create_agent()
        path = f"/v1/agents/{agent}/documents"
        first = await server.http.post(path, content=MARKDOWN, params={"unique": True})
        waiting = await server.http.post(path, content=MARKDOWN, params={"unique": True})
        await server.run_jobs()
        done = await server.http.post(path, content=MARKDOWN, params={"unique": True})
        elsewhere = await server.http.post(
            f"/v1/agents/{other}/documents", content=MARKDOWN, params={"unique": True}
        )
        twice = await server.http.post(path, content=MARKDOWN)
        digests = server.rows("SELECT DISTINCT sha256 FROM documents")
    assert [answer.status_code for answer in (first, waiting, done)] == [202, 200, 200]
    assert waiting.json()["id"] == done.json()["id"] == first.json()["id"]
    assert done.json()["state"] == "done"
    assert elsewhere.status_code == twice.status_code == 202
    assert len({answer.json()["id"] for answer in (first, elsewhere, twice)}) == 3
    assert digests == [(hashlib.sha256(MARKDOWN).digest(),)]


class Watched(HashingEmbedder):
    """Does something before each batch."""

    def __init__(self, before: Any) -> None:
        super().__init__()
        self._before = before
        self.batches = 0

    async def embed(self, texts: Any) -> list[Vector]:
        self.batches += 1
        await self._before(self.batches)
        return await super().embed(texts)


async def test_a_cancelled_document_stops_and_can_continue_where_it_stood(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingestion, "BATCH", 3)

    async def cancel_at_the_third(batch: int) -> None:
        if batch == 3:
            answer = await server.http.post(f"/v1/documents/{document['id']}/cancel")
            assert answer.json()["state"] == "cancelled"

    embedder = Watched(cancel_at_the_third)
    async with serving(database, ScriptedModel(), embedder=embedder, chunk_tokens=32) as server:
        agent = await server.create_agent()
        document = await post(server, f"agents/{agent}", LONG)
        await server.run_jobs()
        stopped = await state(server, document["id"])
        kept = await passages(server, agent)
        again = await server.http.post(f"/v1/documents/{document['id']}/cancel")
        resumed = await server.http.post(f"/v1/documents/{document['id']}/resume")
        await server.run_jobs()
        done = await state(server, document["id"])
        stored = await passages(server, agent)
        late = await server.http.post(f"/v1/documents/{document['id']}/cancel")
        over = await server.http.post(f"/v1/documents/{document['id']}/resume")
    assert stopped["state"] == "cancelled"
    assert 0 < stopped["chunks_done"] == len(kept) < stopped["chunks_total"]
    assert again.status_code == 200
    assert (resumed.status_code, resumed.json()["state"]) == (202, "waiting")
    assert done["state"] == "done"
    assert [item["metadata"]["chunk"] for item in stored] == list(range(1, len(stored) + 1))
    assert stored[: len(kept)] == kept
    assert late.status_code == over.status_code == 409


async def test_a_job_of_a_cancelled_document_ends_though_its_embedder_lost_the_cancellation(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingestion, "BATCH", 3)
    heard: list[str] = []

    async def cancel_then_hang(batch: int) -> None:
        if batch == 3:
            await server.http.post(f"/v1/documents/{document['id']}/cancel")
        elif batch == 4:
            await deaf(heard)

    embedder = Watched(cancel_then_hang)
    async with serving(database, ScriptedModel(), embedder=embedder, chunk_tokens=32) as server:
        agent = await server.create_agent()
        document = await post(server, f"agents/{agent}", LONG)
        async with asyncio.timeout(60):
            await server.run_jobs()
    assert heard == ["cancelled", "cancelled"]


async def test_a_document_that_is_deleted_while_it_is_taken_in_leaves_nothing(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingestion, "BATCH", 3)

    async def delete_at_the_third(batch: int) -> None:
        if batch == 3:
            await server.http.delete(f"/v1/documents/{document['id']}")

    embedder = Watched(delete_at_the_third)
    async with serving(database, ScriptedModel(), embedder=embedder, chunk_tokens=32) as server:
        agent = await server.create_agent()
        document = await post(server, f"agents/{agent}", LONG)
        await server.run_jobs()
        stored = await passages(server, agent)
        total = (await server.get(f"{agent}/archival/search", query="x"))["total"]
        jobs = server.rows(
            "SELECT count(*) FROM procrastinate_jobs WHERE task_name LIKE 'ingest%%'"
        )
    assert stored == []
    assert total == 0
    assert jobs == [(0,)]


async def test_an_embedder_that_is_away_for_a_while_delays_a_document_and_is_reported(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingestion, "BATCH", 3)
    seen: list[Any] = []

    async def away(batch: int) -> None:
        if batch in {3, 4}:
            raise EmbeddingError("The embedder is away.")
        if batch == 5:
            seen.append((await state(server, document["id"]))["error"])

    async with serving(
        database, ScriptedModel(), embedder=Watched(away), chunk_tokens=32
    ) as server:
        agent = await server.create_agent()
        document = await post(server, f"agents/{agent}", LONG)
        await server.run_jobs()
        done = await state(server, document["id"])
        stored = await passages(server, agent)
    assert seen == [{"code": "embedding_error", "message": "The embedder is away.", "hint": ""}]
    assert (done["state"], done["error"]) == ("done", None)
    assert [item["metadata"]["chunk"] for item in stored] == list(range(1, len(stored) + 1))


async def test_a_document_that_fails_for_good_says_so_and_can_be_resumed(
    database: OneDatabase,
) -> None:
    away = True

    async def fail(batch: int) -> None:
        if away:
            raise EmbeddingError("The embedder is away.")

    async with serving(database, ScriptedModel(), embedder=Watched(fail)) as server:
        agent = await server.create_agent()
        failed = await ingest(server, f"agents/{agent}", MARKDOWN)
        away = False
        await server.http.post(f"/v1/documents/{failed['id']}/resume")
        await server.run_jobs()
        done = await state(server, failed["id"])
    assert (failed["state"], failed["error"]["code"]) == ("failed", "embedding_error")
    assert (done["state"], done["error"]) == ("done", None)


async def test_a_long_document_is_taken_in_by_several_jobs_one_after_the_other(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingestion, "BATCH", 5)
    monkeypatch.setattr(ingestion, "PIECE_SECONDS", 0)
    async with serving(database, ScriptedModel(), chunk_tokens=32) as server:
        agent = await server.create_agent()
        document = await ingest(server, f"agents/{agent}", LONG)
        stored = await passages(server, agent)
    assert document["state"] == "done"
    assert document["chunks_total"] > 50
    assert [item["metadata"]["chunk"] for item in stored] == list(range(1, len(stored) + 1))


async def test_two_processes_that_take_the_same_document_in_store_each_passage_once(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingestion, "BATCH", 3)

    async def yield_to_the_other(batch: int) -> None:
        await asyncio.to_thread(lambda: None)

    embedder = Watched(yield_to_the_other)
    async with serving(database, ScriptedModel(), embedder=embedder, chunk_tokens=32) as server:
        agent = await server.create_agent()
        document = await post(server, f"agents/{agent}", LONG)
        job = JobRun("default", {"document": document["id"]}, 1, False)
        await asyncio.gather(*(server.services.documents.run(job) for _ in range(2)))
        await server.run_jobs()
        done = await state(server, document["id"])
        stored = await passages(server, agent)
        total = (await server.get(f"{agent}/archival/search", query="x"))["total"]
    assert done["state"] == "done"
    assert [item["metadata"]["chunk"] for item in stored] == list(range(1, len(stored) + 1))
    assert len(stored) == total == done["chunks_total"]


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
