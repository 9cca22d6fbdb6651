"""Documents through the REST API: from a file to passages that say where they come from."""

import hashlib
import json
from typing import Any

import pytest

from memserver.testing.hashing_embedder import HashingEmbedder
from memserver.testing.scripted import Call, ScriptedModel, say
from tests.support.documents import FILES, LONG, MARKDOWN, best, ingest, passages, state
from tests.support.server import OneDatabase, serving

RECORDS = b"""{"title": "Roses", "text": "They smell sweet.", "tags": ["plant"], "metadata": {"id": 7}}
{"title": "Ravens", "text": "They remember faces."}
"""


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
