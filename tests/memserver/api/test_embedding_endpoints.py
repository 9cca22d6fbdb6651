"""What a user sees of an embedding endpoint that is unlike OpenAI's."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from memserver.cli.doctor import examine_embedder
from memserver.embeddings.batching import BatchingEmbedder
from memserver.errors import EmbeddingRejected, SetupError
from memserver.settings import Settings
from memserver.testing.scripted import ScriptedModel
from memserver.wiring.providers import make_embedder, refuse_unfit_embedder
from tests.memserver.memory.histories import remember
from tests.support.embedding_endpoint import EmbeddingEndpoint
from tests.support.http_app import Current
from tests.support.server import OneDatabase, Server, serving


@pytest.fixture
def endpoint(current: Current) -> EmbeddingEndpoint:
    made = EmbeddingEndpoint(384)
    current.app = made.app
    return made


def endpoint_settings(url: str, model: str = "m", **more: Any) -> Settings:
    return Settings(_env_file=None, embedding_base_url=url, embedding_model=model, **more)


@asynccontextmanager
async def serving_with(
    database: OneDatabase, url: str, model: str = "m", **more: Any
) -> AsyncIterator[Server]:
    """The server with the embedder of its settings."""
    settings = endpoint_settings(url, model, **more)
    embedder = BatchingEmbedder(make_embedder(settings))
    given = settings.model_dump(exclude_unset=True)
    try:
        async with serving(database, ScriptedModel(), embedder=embedder, **given) as server:
            yield server
    finally:
        await embedder.aclose()


def passages(*texts: str) -> dict[str, Any]:
    return {"passages": [{"text": text} for text in texts]}


async def test_more_passages_than_the_endpoint_takes_texts_are_stored(
    database: OneDatabase, endpoint: EmbeddingEndpoint, served: str
) -> None:
    endpoint.most_texts = 10
    async with serving_with(database, served) as server:
        agent = await server.create_agent()
        texts = [f"passage {number}" for number in range(100)]
        stored = await server.http.post(f"/v1/agents/{agent}/archival", json=passages(*texts))
        ready = await server.http.get("/v1/ready")
        found = await server.get(f"{agent}/archival/search", query="passage 77", mode="vector")
    assert stored.status_code == 201
    assert found["total"] == 100
    assert found["items"][0]["text"] == "passage 77"
    details = {each["name"]: each["detail"] for each in ready.json()["components"]}
    assert details["embedder"] == "m, 384 dimensions, up to 8 texts a request"


async def test_a_long_document_is_taken_in_by_an_endpoint_that_takes_few_texts(
    database: OneDatabase, endpoint: EmbeddingEndpoint, served: str
) -> None:
    endpoint.most_texts = 10
    async with serving_with(database, served, chunk_tokens=64) as server:
        agent = await server.create_agent()
        document = await ingest(
            server, agent, "\n\n".join(f"Whale number {n}." for n in range(400))
        )
    assert document["state"] == "done"
    assert document["chunks_done"] == document["chunks_total"] > 100


async def ingest(server: Server, agent: str, text: str) -> dict[str, Any]:
    posted = await server.http.post(
        f"/v1/agents/{agent}/documents",
        content=text.encode(),
    )
    assert posted.status_code == 202, posted.text
    await server.run_jobs()
    document = (await server.http.get(f"/v1/documents/{posted.json()['id']}")).json()
    assert isinstance(document, dict)
    return document


async def test_a_passage_that_the_endpoint_refuses_is_no_outage_and_the_error_has_its_words(
    database: OneDatabase, endpoint: EmbeddingEndpoint, served: str
) -> None:
    endpoint.bad = "secret plan"
    async with serving_with(database, served) as server:
        agent = await server.create_agent()
        place = f"/v1/agents/{agent}/archival"
        refused = await server.http.post(place, json=passages("fine", "a secret plan"))
        stored = await server.http.post(place, json=passages("fine"))
        endpoint.down = 500
        away = await server.http.post(place, json=passages("fine"))
    error = refused.json()["error"]
    assert (refused.status_code, error["code"]) == (502, "embedding_rejected")
    assert "The input was flagged." in error["message"]
    assert error["hint"]
    assert stored.status_code == 201
    assert (away.status_code, away.json()["error"]["code"]) == (503, "embedding_error")


async def test_a_document_that_the_endpoint_refuses_fails_at_once_with_the_reason_and_the_place(
    database: OneDatabase, endpoint: EmbeddingEndpoint, served: str
) -> None:
    endpoint.bad = "secret plan"
    text = "\n\n".join(f"Whale {n}." + " secret plan" * (n == 7) for n in range(20))
    async with serving_with(database, served, chunk_tokens=32) as server:
        agent = await server.create_agent()
        failed = await ingest(server, agent, text)
        jobs = server.rows("SELECT status FROM procrastinate_jobs WHERE task_name LIKE 'ingest%%'")
        endpoint.bad = "\0"
        await server.http.post(f"/v1/documents/{failed['id']}/resume")
        await server.run_jobs()
        done = (await server.http.get(f"/v1/documents/{failed['id']}")).json()
    assert (failed["state"], failed["error"]["code"]) == ("failed", "embedding_rejected")
    assert "The input was flagged." in failed["error"]["message"]
    assert failed["error"]["message"].startswith("Passage ")
    assert jobs == []
    assert done["state"] == "done"


async def test_a_message_that_the_endpoint_refuses_keeps_no_other_from_being_found(
    database: OneDatabase, endpoint: EmbeddingEndpoint, served: str
) -> None:
    endpoint.bad = "secret plan"
    history = [f"I have {number} cellos." for number in range(20)]
    history[7] = "I have a secret plan."
    async with serving_with(database, served) as server:
        agent = await server.create_agent()
        remember(server, agent, history)
        await server.run_jobs()
        found = await server.get(
            f"{agent}/recall/search", query="19 cellos", mode="meaning", limit=50
        )
        by_words = await server.get(f"{agent}/recall/search", query="secret plan", mode="words")
    assert found["coverage"]["complete"]
    assert found["items"][0]["text"] == "I have 19 cellos."
    assert history[7] not in {item["text"] for item in found["items"]}
    assert by_words["items"][0]["text"] == history[7]


async def test_vectors_that_can_not_be_stored_are_said_by_readiness_and_are_no_fault_of_the_server(
    database: OneDatabase, endpoint: EmbeddingEndpoint, served: str
) -> None:
    endpoint.down, endpoint.natural = 503, 4096
    async with serving_with(database, served) as server:
        away = await server.http.post("/v1/agents", json={})
        endpoint.down = 0
        refused = [
            await server.http.post(f"/v1/{kind}", json={"name": "x"})
            for kind in ("agents", "collections")
        ]
        await server.operate()
        ready = await server.http.get("/v1/ready")
    assert away.status_code == 503
    for answer in refused:
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (502, "embedder_unfit")
        assert "4096 dimensions; at most 4000 can be stored" in error["message"]
        assert "MEMSERVER_EMBEDDING_DIMENSION" in error["hint"]
    assert ready.status_code == 503
    details = {each["name"]: each["detail"] for each in ready.json()["components"]}
    assert "at most 4000 can be stored" in details["embedder"]
    assert "MEMSERVER_EMBEDDING_DIMENSION" in details["embedder"]


@pytest.mark.parametrize("dimension", [0, 1024])
async def test_a_start_is_refused_with_vectors_that_can_not_be_stored(
    endpoint: EmbeddingEndpoint, served: str, dimension: int
) -> None:
    endpoint.natural, endpoint.dimensions = 4096, "refused"
    settings = endpoint_settings(served, embedding_dimension=dimension)
    with pytest.raises(SetupError, match="at most 4000 can be stored") as refused:
        await refuse_unfit_embedder(settings)
    assert ("MEMSERVER_EMBEDDING_DIMENSION" in refused.value.hint) == (dimension == 0)
    assert ("`dimensions`" in refused.value.hint) or "at most 4000" in refused.value.hint


@pytest.mark.parametrize("state", ["well", "down", "refusing", "hanging", "not there"])
async def test_a_start_waits_for_no_embedding_endpoint(
    endpoint: EmbeddingEndpoint, current: Current, served: str, state: str
) -> None:
    async def hang(*_: Any) -> None:
        await asyncio.Event().wait()

    endpoint.down = {"down": 503, "refusing": 401}.get(state, 0)
    current.app = hang if state == "hanging" else endpoint.app
    url = "http://127.0.0.1:9/v1" if state == "not there" else served
    await refuse_unfit_embedder(endpoint_settings(url), within=0.05 if state == "hanging" else 2)


async def test_what_the_endpoint_takes_is_found_by_doctor(
    endpoint: EmbeddingEndpoint, served: str
) -> None:
    endpoint.natural, endpoint.most_texts, endpoint.refused = 4096, 10, {"encoding_format"}
    embedder = make_embedder(endpoint_settings(served, embedding_dimension=1024))
    found = await examine_embedder(embedder)
    endpoint.dimensions = "ignored"
    lost = await examine_embedder(embedder)
    await embedder.aclose()
    assert found.well
    assert found.detail.startswith(
        "m, 1024 dimensions, asked for by `dimensions`, without `encoding_format`, "
        "up to 8 texts a request, "
    )
    assert not lost.well
    assert "at most 4000 can be stored" in lost.detail
    assert "at most 4000 dimensions" in lost.remedy


async def test_a_large_model_works_by_a_smaller_dimension_and_continues_when_another_takes_its_place(
    database: OneDatabase, endpoint: EmbeddingEndpoint, served: str
) -> None:
    endpoint.natural = 4096
    async with serving_with(database, served, "large", embedding_dimension=64) as server:
        agent = await server.create_agent()
        place = f"/v1/agents/{agent}/archival"
        stored = await server.http.post(place, json=passages("the cello is called Hugo", "a bus"))
    async with serving_with(database, served, "other", embedding_dimension=32) as server:
        late = await server.http.post(place, json=passages("the cello case"))
        found = await server.get(f"{agent}/archival/search", query="the cello", mode="vector")
    assert stored.status_code == late.status_code == 201
    assert found["total"] == 3
    assert all("cello" in item["text"] for item in found["items"][:2])
    lengths = {(body["model"], body.get("dimensions")) for body in endpoint.asked}
    assert lengths == {("large", None), ("large", 64), ("other", None), ("other", 32)}


async def test_a_passage_that_another_model_refuses_is_named_when_it_is_re_embedded(
    database: OneDatabase, endpoint: EmbeddingEndpoint, served: str
) -> None:
    async with serving_with(database, served, "old") as server:
        agent = await server.create_agent()
        place = f"/v1/agents/{agent}/archival"
        stored = await server.http.post(place, json=passages("fine", "a secret plan", "good"))
    endpoint.bad = "secret plan"
    async with serving_with(database, served, "new") as server:
        embedder, upkeep = server.services.archival.embedder, server.services.upkeep
        [outdated] = await upkeep.outdated(embedder)
        with pytest.raises(EmbeddingRejected, match="The input was flagged") as refused:
            async for _ in upkeep.reembed(outdated, embedder):
                pass
        found = await server.get(f"{agent}/archival/search", query="secret", mode="text")
    bad = stored.json()["items"][1]["id"]
    assert refused.value.message.startswith(f"Passage {bad}: ")
    assert found["total"] == 1
