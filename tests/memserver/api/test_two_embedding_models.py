"""After a change of the embedding model the old collections continue with theirs until they are re-embedded."""

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from memserver.embeddings.openai_compatible import OpenAICompatibleEmbedder, embedding_endpoint
from memserver.testing.hashing_embedder import HashingEmbedder
from memserver.testing.scripted import ScriptedModel
from tests.support.http_app import Current
from tests.support.server import OneDatabase, serving

MODELS = {"old": HashingEmbedder(32), "new": HashingEmbedder(48)}


class Endpoint:
    """Serves two embedding models, and counts what each of them is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def answer(self, request: Request) -> Response:
        body = await request.json()
        self.asked.append(body["model"])
        vectors = await MODELS[body["model"]].embed(body["input"])
        data = [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)]
        return JSONResponse({"data": data, "model": body["model"]})


@pytest.fixture
def endpoint(current: Current) -> Endpoint:
    made = Endpoint()
    current.app = Starlette(routes=[Route("/v1/embeddings", made.answer, methods=["POST"])])
    return made


async def test_one_search_covers_collections_of_two_models_until_all_are_re_embedded(
    database: OneDatabase, endpoint: Endpoint, served: str
) -> None:
    old = OpenAICompatibleEmbedder(embedding_endpoint(served), "old")
    async with serving(database, ScriptedModel(), embedder=old) as server:
        agent = await server.create_agent()
        passages = {"passages": [{"text": "the cello is called Hugo"}, {"text": "a bus"}]}
        await server.http.post(f"/v1/agents/{agent}/archival", json=passages)
    await old.aclose()
    new = OpenAICompatibleEmbedder(embedding_endpoint(served), "new")
    settings = {"embedding_base_url": served, "embedding_model": "new"}
    async with serving(database, ScriptedModel(), embedder=new, **settings) as server:
        made = await server.http.post("/v1/collections", json={"name": "library"})
        library = made.json()["id"]
        passages = {"passages": [{"text": "the cello of the neighbour"}, {"text": "a tram"}]}
        await server.http.post(f"/v1/collections/{library}/passages", json=passages)
        await server.http.put(f"/v1/agents/{agent}/collections/{library}")
        endpoint.asked.clear()
        mixed = await server.get(f"{agent}/archival/search", query="the cello", mode="vector")
        asked = set(endpoint.asked)
        more = {"passages": [{"text": "the cello case"}]}
        late = await server.http.post(f"/v1/agents/{agent}/archival", json=more)
        await server.services.upkeep.queue(await server.services.upkeep.outdated(new), "new")
        await server.run_jobs()
        endpoint.asked.clear()
        after = await server.get(f"{agent}/archival/search", query="the cello", mode="vector")
        asked_after = set(endpoint.asked)
        models = [
            each["embedding_model"] for each in (await server.get(f"{agent}/collections"))["items"]
        ]
    await new.aclose()
    assert (made.status_code, late.status_code) == (201, 201)
    assert {item["text"] for item in mixed["items"][:2]} == {
        "the cello is called Hugo",
        "the cello of the neighbour",
    }
    assert asked == {"old", "new"}
    assert asked_after == {"new"}
    assert models == ["new", "new"]
    assert after["total"] == 5
    assert all("cello" in item["text"] for item in after["items"][:3])
