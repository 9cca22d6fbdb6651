"""Collections over the API: an agent's own and shared ones, their passages, filters and searches."""

import json
from typing import Any
from uuid import uuid4

import pytest

from memserver.testing.hashing_embedder import HashingEmbedder
from memserver.testing.scripted import Call, ScriptedModel, say
from tests.support.collections import ask, fill, make, texts
from tests.support.server import OneDatabase, Server, serving

PASSAGES = [
    {"text": "the cello is called Hugo", "tags": ["music", "home"], "metadata": {"year": 2024}},
    {"text": "the piano is out of tune", "tags": ["music"], "metadata": {"year": 2025.0}},
    {"text": "the fridge hums", "tags": ["home"], "metadata": {"source": {"page": 3}}},
    {"text": "a bus to the sea", "metadata": {"year": "2024"}},
]


async def passages_in_prompt(server: Server, agent: str) -> str:
    context = await server.get(f"{agent}/context")
    [text] = [part["text"] for part in context["parts"] if part["name"] == "working_context"]
    return str(text).split("Archival storage: ")[1].split(" passages")[0]


async def test_an_agent_searches_what_is_attached_and_inserts_into_its_own(
    database: OneDatabase,
) -> None:
    model = ScriptedModel(
        [
            Call("archival_memory_insert", {"content": "a note", "request_heartbeat": True}),
            Call("archival_memory_search", {"query": "cello", "request_heartbeat": True}),
            say("Hugo."),
        ]
    )
    async with serving(database, model) as server:
        agent = await server.create_agent(name="ada")
        library = await make(server)
        await fill(server, library, *PASSAGES)
        alone = await server.get(f"{agent}/archival/search", query="cello")
        attached = await server.http.put(f"/v1/agents/{agent}/collections/{library}")
        again = await server.http.put(f"/v1/agents/{agent}/collections/{library}")
        result = await server.say(agent, "What is the cello called?")
        together = await server.get(f"{agent}/archival/search", query="cello")
        own = await server.get(f"{agent}/archival")
        listed = await server.get(f"{agent}/collections")
        in_prompt = await passages_in_prompt(server, agent)
        detached = await server.http.delete(f"/v1/agents/{agent}/collections/{library}")
        after = await server.get(f"{agent}/archival/search", query="cello")
        in_prompt_after = await passages_in_prompt(server, agent)
    assert alone["total"] == 0
    assert (attached.status_code, again.status_code, detached.status_code) == (204, 204, 204)
    assert "the cello is called Hugo" in result["messages"][1]["tool_call"]["result"]
    assert (together["total"], texts(together)[0]) == (5, "the cello is called Hugo")
    assert texts(own) == ["a note"]
    assert [(c["name"], c["own"], c["passage_count"]) for c in listed["items"]] == [
        ("ada", True, 1),
        ("library", False, 4),
    ]
    assert (in_prompt, in_prompt_after) == ("5", "1")
    assert texts(after) == ["a note"]


async def test_counts_follow_insertions_deletions_and_changes_for_all_who_read_a_collection(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel()) as server:
        library = await make(server)
        agents = [await server.create_agent() for _ in range(2)]
        for agent in agents:
            await server.http.put(f"/v1/agents/{agent}/collections/{library}")
        seen = []
        ids = await fill(server, library, *PASSAGES)
        seen.append([await passages_in_prompt(server, agent) for agent in agents])
        await server.http.delete(f"/v1/collections/{library}/passages/{ids[0]}")
        await server.http.delete(f"/v1/collections/{library}/passages/{ids[0]}")
        seen.append([await passages_in_prompt(server, agent) for agent in agents])
        await server.http.patch(
            f"/v1/collections/{library}/passages/{ids[1]}", json={"text": "tuned now"}
        )
        seen.append([await passages_in_prompt(server, agent) for agent in agents])
        found = await server.get(f"{agents[0]}/archival/search", query="tuned")
        await server.http.delete(f"/v1/collections/{library}")
        seen.append([await passages_in_prompt(server, agent) for agent in agents])
        left = server.rows("SELECT count(*) FROM passages")
    assert seen == [["4", "4"], ["3", "3"], ["3", "3"], ["0", "0"]]
    assert found["total"] == 3
    assert left == [(0,)]


async def test_a_changed_passage_is_found_by_its_new_text_and_not_by_its_old(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel()) as server:
        library = await make(server)
        [first, _] = await fill(server, library, *PASSAGES[:2])
        url = f"/v1/collections/{library}/passages/{first}"
        changed = await server.http.patch(url, json={"text": "the violin is called Ida"})
        tagged = await server.http.patch(url, json={"tags": ["strings"], "metadata": {}})
        stored = await server.http.get(url)
        null = await server.http.patch(url, json={"text": None})
        blank = await server.http.patch(url, json={"text": " "})
        by_word = await ask(server, f"collections/{library}/search", query="violin", mode="text")
        by_old = await ask(server, f"collections/{library}/search", query="cello", mode="text")
        by_meaning = await ask(
            server, f"collections/{library}/search", query="violin called Ida", mode="vector"
        )
    assert (changed.status_code, tagged.status_code) == (200, 200)
    assert stored.json() == tagged.json()
    assert stored.json()["text"] == "the violin is called Ida"
    assert (stored.json()["tags"], stored.json()["metadata"]) == (["strings"], {})
    assert stored.json()["updated_at"] > stored.json()["created_at"]
    assert (null.status_code, blank.status_code) == (422, 422)
    assert texts(by_word) == ["the violin is called Ida"]
    assert texts(by_old) == []
    assert texts(by_meaning)[0] == "the violin is called Ida"


FILTERS: list[tuple[dict[str, Any], set[int]]] = [
    ({"tag": "music"}, {0, 1}),
    ({"tag": ["music", "home"]}, {0}),
    ({"any_tag": ["music", "home"]}, {0, 1, 2}),
    ({"any_tag": "music", "tag": "home"}, {0}),
    ({"tag": "none"}, set()),
    ({"metadata": {"year": 2024}}, {0}),
    ({"metadata": {"year": 2025}}, {1}),
    ({"metadata": {"year": "2024"}}, {3}),
    ({"metadata": {"source": {"page": 3}}}, {2}),
    ({"metadata": {"source": {"page": 4}}}, set()),
    ({"metadata": {}}, {0, 1, 2, 3}),
    ({"start_date": "2026-01-01", "end_date": "2026-01-02"}, {1, 2}),
    ({"end_date": "2025-12-31"}, {0}),
    ({"start_date": "2026-01-02"}, {2, 3}),
    ({"start_date": "2026-01-02", "any_tag": ["home"]}, {2}),
]


@pytest.mark.parametrize("mode", ["hybrid", "vector", "text"])
async def test_filters_hold_in_every_search_and_in_lists(database: OneDatabase, mode: str) -> None:
    days = [
        "2025-12-31T23:59:59Z",
        "2026-01-01T00:00:00Z",
        "2026-01-02T23:00:00Z",
        "2026-02-01T00:00:00Z",
    ]
    async with serving(database, ScriptedModel()) as server:
        library = await make(server, language="simple")
        dated = [
            {**passage, "created_at": day} for passage, day in zip(PASSAGES, days, strict=True)
        ]
        await fill(server, library, *dated)
        for wanted, expected in FILTERS:
            query = {**wanted}
            if "metadata" in query:
                query["metadata"] = json.dumps(query["metadata"])
            asked = {"query": "the cello piano fridge bus", "mode": mode, **query}
            found = await ask(server, f"collections/{library}/search", **asked)
            listed = await ask(server, f"collections/{library}/passages", **query)
            wanted_texts = {PASSAGES[number]["text"] for number in expected}
            assert set(texts(found)) == wanted_texts, wanted
            assert found["total"] == len(expected), wanted
            assert set(texts(listed)) == wanted_texts, wanted


async def test_results_say_which_retriever_found_them_and_where(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        library = await make(server)
        await fill(server, library, *PASSAGES)
        hybrid = await ask(server, f"collections/{library}/search", query="cello")
        vector = await ask(server, f"collections/{library}/search", query="cello", mode="vector")
        words = await ask(server, f"collections/{library}/search", query="cello", mode="text")
        unknown = await server.http.get(
            f"/v1/collections/{library}/search", params={"query": "x", "mode": "magic"}
        )
    first, second = hybrid["items"][:2]
    assert [(s["retriever"], s["rank"]) for s in first["sources"]] == [("vector", 1), ("text", 1)]
    assert [s["retriever"] for s in second["sources"]] == ["vector"]
    assert first["collection_id"] == library
    assert first["score"] > second["score"] > 0
    assert vector["items"][0]["score"] == vector["items"][0]["sources"][0]["score"] <= 1
    assert (len(words["items"]), words["total"]) == (1, 1)
    assert [found["mode"] for found in (hybrid, vector, words)] == ["hybrid", "vector", "text"]
    assert unknown.status_code == 422


async def test_the_server_s_setting_decides_what_finds_passages(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel(), archival_search="text") as server:
        agent = await server.create_agent()
        passages = {"passages": PASSAGES}
        await server.http.post(f"/v1/agents/{agent}/archival", json=passages)
        found = await server.get(f"{agent}/archival/search", query="hum")
        nothing = await server.get(f"{agent}/archival/search", query="the and of")
    assert (texts(found), found["mode"]) == (["the fridge hums"], "text")
    assert nothing["items"] == []


async def test_only_the_best_of_many_results_can_be_paged_and_that_is_said(
    database: OneDatabase,
) -> None:
    search = [
        Call("archival_memory_search", {"query": "note", "page": page, "request_heartbeat": True})
        for page in (20, 21)
    ]
    async with serving(database, ScriptedModel([*search, say("done")])) as server:
        agent = await server.create_agent()
        notes = {"passages": [{"text": f"note {number}"} for number in range(230)]}
        await server.http.post(f"/v1/agents/{agent}/archival", json=notes)
        result = await server.say(agent, "Look!")
        last = await server.get(f"{agent}/archival/search", query="note", page=20)
        beyond = await server.get(f"{agent}/archival/search", query="note", page=21)
        pages = [
            texts(await server.get(f"{agent}/archival/search", query="note", page=page))
            for page in range(1, 21)
        ]
    reported = [message["tool_call"]["result"] for message in result["messages"][:2]]
    assert reported[0].startswith(
        "Showing 10 of 230 results (page 20/20; only the best 200 can be paged):\n"
    )
    assert reported[1] == "Showing 0 of 230 results (page 21/20; only the best 200 can be paged)."
    assert (last["total"], last["reachable"], last["pages"]) == (230, 200, 20)
    assert (beyond["items"], beyond["total"]) == ([], 230)
    assert len({text for page in pages for text in page}) == 200


async def test_collections_are_listed_changed_and_refused_with_reasons(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        ids = [await make(server, name) for name in ("a", "b", "c")]
        first = await ask(server, "collections", limit=2)
        rest = await ask(server, "collections", limit=2, after=first["next"])
        named = await ask(server, "collections", name="b")
        changed = await server.http.patch(
            f"/v1/collections/{ids[0]}", json={"description": "d", "metadata": {"x": 1}}
        )
        [own] = (await server.get(f"{agent}/collections"))["items"]
        refused = [
            await server.http.post("/v1/collections", json={"name": "a"}),
            await server.http.patch(f"/v1/collections/{ids[1]}", json={"name": "a"}),
            await server.http.patch(f"/v1/collections/{own['id']}", json={"name": "x"}),
            await server.http.delete(f"/v1/collections/{own['id']}"),
            await server.http.delete(f"/v1/agents/{agent}/collections/{own['id']}"),
            await server.http.delete(f"/v1/agents/{agent}/collections/{ids[0]}"),
            await server.http.post("/v1/collections", json={"name": "z", "language": "klingon"}),
            await server.http.put(f"/v1/agents/{agent}/collections/{uuid4()}"),
            await server.http.put(f"/v1/agents/{uuid4()}/collections/{ids[0]}"),
            await server.http.get(f"/v1/collections/{uuid4()}/search", params={"query": "x"}),
            await server.http.get(
                f"/v1/collections/{ids[0]}/search", params={"query": "x", "metadata": "[1]"}
            ),
            await server.http.get(
                f"/v1/collections/{ids[0]}/search", params={"query": "x", "start_date": "soon"}
            ),
        ]
    assert [c["name"] for c in first["items"] + rest["items"]] == ["a", "b", "c"]
    assert rest["next"] is None
    assert [c["id"] for c in named["items"]] == [ids[1]]
    assert (changed.json()["description"], changed.json()["metadata"]) == ("d", {"x": 1})
    assert [answer.status_code for answer in refused] == [409] * 5 + [404, 422] + [404] * 3 + [
        422
    ] * 2
    assert "english" in refused[6].json()["error"]["hint"]


async def test_a_deleted_agent_s_collection_stays_where_others_read_it(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel()) as server:
        ada, ben = [await server.create_agent(name=name) for name in ("ada", "ben")]
        await server.http.post(f"/v1/agents/{ada}/archival", json={"passages": PASSAGES})
        [own] = (await server.get(f"{ada}/collections"))["items"]
        await server.http.put(f"/v1/agents/{ben}/collections/{own['id']}")
        gone = await server.http.delete(f"/v1/agents/{ada}")
        found = await server.get(f"{ben}/archival/search", query="cello")
        kept = await ask(server, f"collections/{own['id']}")
        await server.http.delete(f"/v1/agents/{ben}")
        [left] = server.rows("SELECT count(*) FROM collections")
        removed = await server.http.delete(f"/v1/collections/{own['id']}")
        tables = [name for (name,) in server.rows("SELECT table_name FROM embedding_models")]
        vectors = [server.rows(f"SELECT count(*) FROM {table}") for table in tables]
    assert gone.status_code == 204
    assert found["total"] == 4
    assert (kept["own"], kept["name"]) == (False, f"ada {own['id']}")
    assert left == (1,)
    assert removed.status_code == 204
    assert vectors == [[(0,)]]


async def test_collections_grow_and_change_their_model_by_the_server_s_jobs(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memserver.storage.passages.MOST_TOGETHER", 20)
    async with serving(database, ScriptedModel()) as server:
        small, large = [await make(server, name) for name in ("small", "large")]
        await fill(server, small, *PASSAGES)
        await fill(server, large, *PASSAGES, *({"text": f"note {n}"} for n in range(30)))
        await server.run_jobs()
        grown = server.rows("SELECT name, vectors_table ~ '_own_' FROM collections ORDER BY name")
        await server.run_jobs()
        before = await ask(server, f"collections/{large}/search", query="cello")
    other = HashingEmbedder(32, model="another")
    async with serving(database, ScriptedModel(), embedder=other) as server:
        refused = await server.http.get(
            f"/v1/collections/{large}/search", params={"query": "cello"}
        )
        outdated = await server.services.upkeep.outdated(other)
        await server.services.upkeep.queue(outdated, other.model)
        await server.run_jobs()
        left = await server.services.upkeep.outdated(other)
        after = [
            await ask(server, f"collections/{each}/search", query="cello")
            for each in (small, large)
        ]
        stored = await ask(server, f"collections/{large}")
        retired = server.rows("SELECT count(*) FROM retired_vectors")
        tables = server.rows("SELECT count(*) FROM pg_tables WHERE tablename ~ 'vectors_own_'")
    assert grown == [("large", True), ("small", False)]
    assert refused.json()["error"]["code"] == "embedding_error"
    assert "memserver reembed" in refused.json()["error"]["hint"]
    assert {str(each.collection_id) for each in outdated} == {small, large}
    assert left == []
    assert [found["items"][0]["text"] for found in (before, *after)] == [PASSAGES[0]["text"]] * 3
    assert (stored["embedding_model"], stored["dimension"]) == ("another", 32)
    assert (retired, tables) == ([(0,)], [(1,)])


async def test_a_passage_of_more_different_words_than_an_index_entry_holds_is_taken_and_found(
    database: OneDatabase,
) -> None:
    text = " ".join(f"w{n:07}" for n in range(110_000))
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        path = f"/v1/agents/{agent}/archival"
        passages = {"passages": [{"text": "short"}]}
        [short] = (await server.http.post(path, json=passages)).json()["items"]
        place = f"/v1/collections/{short['collection_id']}/passages/{short['id']}"
        changed = await server.http.patch(place, json={"text": text})
        assert changed.status_code == 200, changed.text
        found = await server.http.get(f"{path}/search", params={"query": "w0000007"})
        assert [each["id"] for each in found.json()["items"]] == [short["id"]]
        assert (await server.http.post(path, json={"passages": [{"text": text}]})).is_success
