"""What tests are written with: the whole server in this process, over a real database."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psycopg
from fastapi import FastAPI

from memserver.agent.dependencies import Clock, ModelSource, utc_now
from memserver.llm.base import ChatModel
from memserver.settings import Settings
from memserver.testing.hashing_embedder import HashingEmbedder
from memserver.testing.scripted import ScriptedModel
from memserver.tools.tool import RunnableTool
from memserver.wiring.providers import Models
from memserver.wiring.services import Services, assemble
from tests.support.apps import application


@dataclass(frozen=True)
class OneDatabase:
    """A database of one test, by role."""

    app: str
    owner: str
    superuser: str


@dataclass
class FixedModels(ModelSource):
    """Every agent has the same model."""

    model: ChatModel

    def get(self, name: str | None, tenant: str = "") -> ChatModel:
        return self.model


@dataclass
class NamedModels(ModelSource):
    """Each name has its own model; None is the default's."""

    models: dict[str | None, ChatModel]

    def get(self, name: str | None, tenant: str = "") -> ChatModel:
        return self.models[name]


@dataclass
class Server:
    """A server in this process, and its client."""

    http: httpx2.AsyncClient
    services: Services
    model: ScriptedModel
    database: OneDatabase
    app: FastAPI

    async def create_agent(self, **fields: Any) -> str:
        answer = await self.http.post("/v1/agents", json=fields)
        assert answer.status_code == 201, answer.text
        agent_id: str = answer.json()["id"]
        return agent_id

    async def say(self, agent_id: str, text: str, **headers: str) -> dict[str, Any]:
        answer = await self.http.post(
            f"/v1/agents/{agent_id}/messages", json={"text": text}, headers=headers
        )
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()
        return result

    async def create_key(self, **fields: Any) -> dict[str, str]:
        """A key's header. The first one that is made without `tenant` is best an admin's: see `operate`."""
        answer = await self.http.post("/v1/keys", json={"name": "a key", **fields})
        assert answer.status_code == 201, answer.text
        return {"Authorization": f"Bearer {answer.json()['key']}"}

    async def operate(self) -> None:
        """Make the first key, the operator's, and ask by it from now on."""
        self.http.headers.update(await self.create_key(scopes=["admin"]))

    async def create_tenant(self, tenant: str, *scopes: str) -> dict[str, str]:
        """A tenant with a key; needs `operate`."""
        answer = await self.http.post("/v1/tenants", json={"tenant": tenant})
        assert answer.status_code == 201, answer.text
        return await self.create_key(tenant=tenant, scopes=scopes or ["admin"])

    async def run_jobs(self) -> None:
        """Run all that is queued, until nothing is left."""
        await self.services.jobs.run_until_idle()

    async def get(self, path: str, **query: Any) -> dict[str, Any]:
        answer = await self.http.get(f"/v1/agents/{path}".rstrip("/"), params=query)
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()
        return result

    async def events(self, agent_id: str, text: str) -> list[tuple[str, dict[str, Any]]]:
        async with self.http.stream(
            "POST", f"/v1/agents/{agent_id}/messages", json={"text": text, "stream": True}
        ) as answer:
            assert answer.status_code == 200
            body = "".join([part async for part in answer.aiter_text()])
        found = []
        for frame in body.strip().split("\n\n"):
            *_, kind, data = frame.split("\n")
            found.append((kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
        return found

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.database.superuser) as connection:
            return connection.execute(query.encode(), parameters).fetchall()


@asynccontextmanager
async def serving(
    database: OneDatabase, model: ScriptedModel, tools: Sequence[RunnableTool] = (), **settings: Any
) -> AsyncIterator[Server]:
    """The whole server over a test's database, with a scripted model, or with `models` by name.

    With `llm_base_url` among the settings the models are those of that endpoint. Jobs run when the test
    says so, by `run_jobs`, unless it sets `jobs_at_once`.
    """
    embedder = settings.pop("embedder", HashingEmbedder())
    models: ModelSource | None = settings.pop("models", None)
    clock: Clock = settings.pop("clock", utc_now)
    options = Settings(
        _env_file=None,
        **{"lease_seconds": 2, "jobs_at_once": 0, **settings},
    )
    if models is None:
        models = Models(options) if options.llm_base_url else FixedModels(model)
    made = assemble(database.app, models, embedder, options, tools, clock)
    with application(made, options) as app:
        transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(
                transport=transport, base_url="http://localhost", timeout=60
            ) as http,
        ):
            try:
                yield Server(http, app.state.services, model, database, app)
            finally:
                if isinstance(models, Models):
                    await models.aclose()


@dataclass(frozen=True)
class Golden:
    """Texts that a reader can check, kept beside the tests."""

    folder: Path

    def check(self, name: str, text: str, *, renew: bool = False) -> None:
        path = self.folder / name
        if renew or not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n", encoding="utf-8")
        assert text + "\n" == path.read_text(encoding="utf-8")
