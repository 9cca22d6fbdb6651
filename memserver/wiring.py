"""The composition root: from settings to collaborators. Nothing else builds anything."""

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError
from typing_extensions import override

from memserver.agent.calls import CallLimits
from memserver.agent.compaction import COMPACT, CompactionJob
from memserver.agent.conversation import Conversation
from memserver.agent.events import EventBus
from memserver.agent.faculties import Clock, Faculties, Limits, ModelSource, utc_now
from memserver.agent.worker import Worker
from memserver.circuit import Circuit
from memserver.embeddings.base import Embedder
from memserver.embeddings.batching import BatchingEmbedder
from memserver.embeddings.openai_compatible import OpenAICompatibleEmbedder
from memserver.embeddings.sentence_transformers import SentenceTransformersEmbedder
from memserver.endpoint import Endpoint
from memserver.errors import MemserverError, SetupError
from memserver.llm.admission import Admitted, FairSlots, Gate
from memserver.llm.base import ChatModel
from memserver.llm.counters import Counters
from memserver.llm.openai_compatible import JsonAnswers, OpenAICompatible
from memserver.memory import documents
from memserver.memory.archival import ArchivalStorage, no_embedder
from memserver.memory.documents import DocumentLimits, Documents
from memserver.memory.recall_meaning import RecallEmbedding
from memserver.memory.vector_upkeep import VectorUpkeep
from memserver.outbound.addresses import Networks
from memserver.outbound.mcp import HttpServer, StdioServer
from memserver.outbound.webhooks import WebhookSender
from memserver.parsing.sandbox import Sandbox
from memserver.prompts import Prompts
from memserver.settings import Settings
from memserver.storage import recall_vectors
from memserver.storage.checks import APP_ROLE, check_app_url
from memserver.storage.database import Database
from memserver.storage.embedded_postgres import EmbeddedPostgres
from memserver.storage.idempotency import IdempotencyKeys
from memserver.storage.job_runner import JobRunner
from memserver.storage.jobs import Handler
from memserver.storage.key_ring import KeyRing
from memserver.storage.migrate import OWNER_ROLE, migrate, prepare_embedded
from memserver.tools.loading import load_tools
from memserver.tools.mcp_tools import McpServers
from memserver.tools.memory_tools import memory_tools
from memserver.tools.registry import SpecStyle, Tool, ToolRegistry
from memserver.tools.remote import Remote
from memserver.tools.toolbox import Toolbox

EMBEDDED_DATABASE = "memserver"


@dataclass(frozen=True, slots=True)
class Check:
    """Whether one thing that a turn needs is there."""

    name: str
    ready: bool
    detail: str


@dataclass(frozen=True, slots=True)
class DatabaseUrls:
    """How the database is reached: as the owner, who migrates, and as the application role."""

    owner: str
    app: str


@dataclass(frozen=True, slots=True)
class Services:
    """What the API works with."""

    database: Database
    faculties: Faculties
    worker: Worker
    conversation: Conversation
    archival: ArchivalStorage
    upkeep: VectorUpkeep
    documents: Documents
    jobs: JobRunner
    keys: KeyRing
    idempotency: IdempotencyKeys
    mcp: McpServers
    networks: Networks
    """Private networks that webhooks and MCP servers may be in."""
    import_max_bytes: int
    """Size of an agent file."""

    async def readiness(self) -> list[Check]:
        """Look at database, model and embedder, all at once."""
        return list(
            await asyncio.gather(
                _check("database", self._ask_database()),
                _check("model", self._ask_model()),
                _check("embedder", self._ask_embedder()),
            )
        )

    async def _ask_database(self) -> str:
        async with self.database.across_tenants() as tx:
            await tx.execute("SELECT 1")
        return "answers"

    async def _ask_model(self) -> str:
        model = self.faculties.models.get(None)
        await model.check()
        return model.name

    async def _ask_embedder(self) -> str:
        await self.archival.embedder.check()
        return self.archival.embedder.model


class Models(ModelSource):
    """One client for each model name, all at the endpoint of the settings."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._models: dict[str | None, ChatModel] = {}
        self.gate = Gate(FairSlots(settings.llm_max_in_flight), Circuit())
        self._counters: Counters | None = None

    @override
    def get(self, name: str | None, tenant: str = "") -> ChatModel:
        """The model of this name, as the tenant has it; None is the settings' own."""
        if name not in self._models:
            self._models[name] = self._make(name)
        return Admitted(self._models[name], self.gate, tenant)

    async def aclose(self) -> None:
        """Close every client."""
        for model in self._models.values():
            await model.aclose()
        if self._counters is not None:
            await self._counters.aclose()

    def _make(self, name: str | None) -> ChatModel:
        settings = self._settings
        endpoint = model_endpoint(settings)
        if self._counters is None:
            self._counters = Counters(
                endpoint,
                default=settings.llm_model,
                tokenizer=settings.llm_tokenizer,
                circuit=self.gate.circuit,
            )
        return OpenAICompatible(
            endpoint,
            model=name or settings.llm_model,
            mode=settings.llm_mode,
            context_window=settings.llm_context_window,
            window_is_limit=name not in {None, settings.llm_model},
            counter=self._counters.of(name),
            body=settings.llm_body,
            answers=JsonAnswers(settings.llm_schema, settings.llm_list_tools),
            seed=settings.llm_seed,
            circuit=self.gate.circuit,
        )


class OtherEmbedders:
    """Embedders of collections that were made with another model than the settings' own.

    Those are the endpoint's other models, and the local one where the endpoint has taken its place.
    """

    def __init__(self, current: str, settings: Settings) -> None:
        self._current = current
        self._settings = settings
        self._made: dict[str, Embedder] = {}

    def get(self, model: str) -> Embedder:
        """The embedder of this model. Raises EmbeddingError where there is none here."""
        if model not in self._made:
            self._made[model] = BatchingEmbedder(self._make(model))
        return self._made[model]

    async def aclose(self) -> None:
        """Close every one."""
        for embedder in self._made.values():
            await embedder.aclose()

    def _make(self, model: str) -> Embedder:
        settings = self._settings
        if settings.embedding_base_url is None:
            raise no_embedder(model, self._current)
        local = SentenceTransformersEmbedder()
        if model == local.model:
            local.warm_up()
            return local
        return _endpoint_embedder(settings, model)


def model_endpoint(settings: Settings) -> Endpoint:
    """Where the models are. Raises SetupError where no setting says so."""
    if settings.llm_base_url is None:
        raise SetupError(
            "There is no model endpoint.",
            hint="Set MEMSERVER_LLM_BASE_URL, or start by `memserver serve`, which brings the "
            "local engine.",
        )
    key = settings.llm_api_key
    return Endpoint(
        settings.llm_base_url,
        key.get_secret_value() if key else "",
        settings.llm_timeout,
        connections=0,  # the gate bounds them, and is fair
        told_agent=settings.llm_tell_agent,
    )


def check_settings(settings: Settings) -> None:
    """Find what is wrong with the settings in themselves, before anything is started.

    Raises:
        SetupError: something is missing, or names what is not there.
    """
    _embedding_model(settings)
    python_tools(settings)
    for name in ("prompts_dir", "llm_tokenizer", "embedding_tokenizer"):
        path = getattr(settings, name)
        if path is not None and not path.exists():
            raise SetupError(
                f"MEMSERVER_{name.upper()} names {path}, which is not there.",
                hint="Mend the path, or unset it.",
            )


@contextmanager
def database_urls(settings: Settings) -> Iterator[DatabaseUrls]:
    """The database of the settings, running and migrated while the block runs.

    Raises:
        SetupError: it can't be had; the hint says how to mend it.
    """
    with reachable_database(settings) as urls:
        migrate(urls.owner)
        check_app_url(urls.app)
        yield urls


@contextmanager
def reachable_database(settings: Settings) -> Iterator[DatabaseUrls]:
    """The database of the settings as it is; the embedded one is started.

    Raises:
        SetupError: its URL is none, or the embedded one can't run here; the hint says how to mend it.
    """
    if settings.database_url is not None:
        owner = _checked_url(settings.database_url.get_secret_value())
        yield DatabaseUrls(owner, _app_url(settings, owner))
        return
    with EmbeddedPostgres(settings.home / "postgres") as server:
        prepare_embedded(server.url(), EMBEDDED_DATABASE)
        yield DatabaseUrls(
            server.url(EMBEDDED_DATABASE, OWNER_ROLE), server.url(EMBEDDED_DATABASE, APP_ROLE)
        )


def make_embedder(settings: Settings) -> Embedder:
    """The embedder of the settings, loading where it is local. Raises SetupError."""
    if settings.embedding_base_url is None:
        local = SentenceTransformersEmbedder()
        local.warm_up()
        return local
    return _endpoint_embedder(
        settings,
        _embedding_model(settings),
        dimension=settings.embedding_dimension,
        window=settings.embedding_window,
        tokenizer=settings.embedding_tokenizer,
    )


def _endpoint_embedder(
    settings: Settings,
    model: str,
    *,
    dimension: int = 0,
    window: int = 0,
    tokenizer: Path | None = None,
) -> Embedder:
    assert settings.embedding_base_url is not None
    key = settings.embedding_api_key
    return OpenAICompatibleEmbedder(
        settings.embedding_base_url,
        model,
        api_key=key.get_secret_value() if key else "",
        dimension=dimension,
        window=window,
        tokenizer=tokenizer,
    )


@asynccontextmanager
async def running_services(settings: Settings) -> AsyncIterator[Services]:
    """Everything, built from the settings and running while the block runs."""
    with database_urls(settings) as urls:
        models = Models(settings)
        embedder = BatchingEmbedder(make_embedder(settings))
        try:
            tools = python_tools(settings)
            async with assemble(urls.app, models, embedder, settings, tools) as services:
                yield services
        finally:
            await embedder.aclose()
            await models.aclose()


@asynccontextmanager
async def upkeep_alone(
    settings: Settings, app_url: str
) -> AsyncIterator[tuple[VectorUpkeep, Embedder]]:
    """What re-embeds collections, and the embedder of the settings, without a server."""
    database = Database(app_url, pool_size=2)
    embedder = make_embedder(settings)
    others = OtherEmbedders(embedder.model, settings)
    archival = ArchivalStorage(embedder, others)
    await database.open()
    try:
        yield (
            VectorUpkeep(database, archival.embedder_of, index_memory=settings.vector_index_memory),
            embedder,
        )
    finally:
        await others.aclose()
        await embedder.aclose()
        await database.close()


@asynccontextmanager
async def memory_alone(
    settings: Settings, app_url: str
) -> AsyncIterator[tuple[Database, ArchivalStorage]]:
    """The database and archival storage, for who uses memories without turns."""
    embedder = BatchingEmbedder(make_embedder(settings))
    others = OtherEmbedders(embedder.model, settings)
    database = Database(app_url, pool_size=settings.database_pool_size)
    await database.open()
    try:
        yield database, ArchivalStorage(embedder, others, mode=settings.archival_search)
    finally:
        await others.aclose()
        await embedder.aclose()
        await database.close()


@asynccontextmanager
async def assemble(
    app_url: str,
    models: ModelSource,
    embedder: Embedder,
    settings: Settings,
    tools: Sequence[Tool] = (),
    clock: Clock = utc_now,
) -> AsyncIterator[Services]:
    """The services over a database, models, an embedder, further tools and a clock of the caller's."""
    others = OtherEmbedders(embedder.model, settings)
    database = Database(app_url, pool_size=settings.database_pool_size)
    await database.open()
    archival = ArchivalStorage(embedder, others, mode=settings.archival_search)
    upkeep = VectorUpkeep(database, archival.embedder_of, index_memory=settings.vector_index_memory)
    registry = ToolRegistry(
        [*memory_tools(), *tools],
        SpecStyle(settings.llm_thought_last, settings.llm_longest_text),
    )
    webhooks = WebhookSender(settings.tool_networks)
    mcp = McpServers(database, configured_mcp_servers(settings), settings.tool_networks)
    faculties = Faculties(
        database=database,
        models=models,
        archival=archival,
        tools=Toolbox(registry, Remote(webhooks, mcp)),
        prompts=Prompts(settings.prompts_dir),
        events=EventBus(),
        limits=Limits(
            max_steps=settings.max_steps,
            max_output_tokens=settings.llm_max_output_tokens,
            prompt_order=settings.prompt_order,
            turn_timeout=settings.turn_timeout,
            waiting_call_seconds=settings.waiting_call_seconds,
            calls=CallLimits(settings.tool_timeout, settings.tool_result_characters),
        ),
        summary_model=settings.summary_model,
        summary_method=settings.summary_method,
        clock=clock,
    )
    worker = Worker(faculties, name=_worker_name(), lease_seconds=settings.lease_seconds)
    conversation = Conversation(faculties, worker)
    taken_in = Documents(
        database,
        archival.embedder_of,
        Sandbox(settings.document_timeout, settings.document_memory_mb),
        DocumentLimits(settings.document_max_bytes, settings.chunk_tokens, settings.chunk_overlap),
    )
    jobs = JobRunner(
        database,
        job_handlers(faculties, upkeep, taken_in),
        at_once=settings.jobs_at_once,
        lease_seconds=settings.lease_seconds,
    )
    keys = KeyRing(database, settings.key_cache_seconds, clock)
    idempotency = IdempotencyKeys(
        database, lease_seconds=settings.lease_seconds, lifetime=settings.idempotency_seconds
    )
    try:
        async with mcp.running(), worker.running(), jobs.running(), idempotency.running():
            yield Services(
                database=database,
                faculties=faculties,
                worker=worker,
                conversation=conversation,
                archival=archival,
                upkeep=upkeep,
                documents=taken_in,
                jobs=jobs,
                keys=keys,
                idempotency=idempotency,
                mcp=mcp,
                networks=settings.tool_networks,
                import_max_bytes=settings.import_max_bytes,
            )
    finally:
        await webhooks.aclose()
        await others.aclose()
        await database.close()


def python_tools(settings: Settings) -> list[Tool]:
    """The Python functions that packages bring as tools. Raises SetupError, with file and line."""
    return load_tools(settings.tools, taken=[tool.spec.name for tool in memory_tools()])


def configured_mcp_servers(settings: Settings) -> dict[str, StdioServer | HttpServer]:
    """The MCP servers of the settings, by name."""
    made: dict[str, StdioServer | HttpServer] = {}
    for name, server in settings.mcp_servers.items():
        if server.command is not None:
            made[name] = StdioServer(server.command, server.args, server.env)
        elif server.url is not None:
            made[name] = HttpServer(server.url, server.headers, networks=None)
    return made


def job_handlers(
    faculties: Faculties, upkeep: VectorUpkeep, taken_in: Documents
) -> dict[str, Handler]:
    """What does the jobs of each name."""
    recall = RecallEmbedding(faculties.database, faculties.archival)
    return {
        COMPACT: CompactionJob(faculties).run,
        recall_vectors.JOB: recall.run,
        documents.JOB: taken_in.run,
        **upkeep.handlers(),
    }


async def _check(name: str, asked: Awaitable[str]) -> Check:
    try:
        return Check(name, True, await asked)
    except MemserverError as error:
        return Check(name, False, error.message)


def _embedding_model(settings: Settings) -> str:
    if settings.embedding_base_url is not None and settings.embedding_model is None:
        raise SetupError(
            "MEMSERVER_EMBEDDING_BASE_URL is set, but no model.",
            hint="Set MEMSERVER_EMBEDDING_MODEL too.",
        )
    return settings.embedding_model or ""


def _checked_url(url: str) -> str:
    """The URL, if it is one; the message repeats nothing of it, since it may hold a password."""
    try:
        backend = make_url(url).get_backend_name()
    except (ArgumentError, ValueError):
        backend = ""
    if backend not in {"postgresql", "postgres"}:
        raise SetupError(
            "MEMSERVER_DATABASE_URL is not the URL of a Postgres database.",
            hint="It looks like postgresql://user:password@host:5432/database.",
        )
    return url


def _app_url(settings: Settings, owner: str) -> str:
    """An external server's URL as the application role, which the owner may become."""
    if settings.database_app_url is not None:
        return settings.database_app_url.get_secret_value()
    options = str(conninfo_to_dict(owner).get("options") or "")
    return make_conninfo(owner, options=f"{options} -c role={APP_ROLE}".strip())


def _worker_name() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
