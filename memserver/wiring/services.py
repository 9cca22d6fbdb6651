"""The composition root: from settings to collaborators. Nothing else builds anything."""

import asyncio
import gc
import os
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from memserver.agent.compaction import COMPACT, compact
from memserver.agent.conversation import Conversation
from memserver.agent.dependencies import Clock, ModelSource, TurnDependencies, utc_now
from memserver.agent.event_jobs import EventJobs
from memserver.agent.events import EventBus
from memserver.agent.options import CallLimits, Limits
from memserver.agent.rewriting import rewrite
from memserver.agent.worker import Worker
from memserver.embeddings.base import Embedder
from memserver.embeddings.batching import BatchingEmbedder
from memserver.errors import MemserverError, SetupError
from memserver.llm.profile import profile_of
from memserver.memory import documents, timers
from memserver.memory.archival import ArchivalStorage
from memserver.memory.documents import DocumentLimits, DocumentStore
from memserver.memory.message_index import MessageIndexing
from memserver.memory.parsing.sandbox import Sandbox
from memserver.memory.pictures import PictureLimits
from memserver.memory.recall import RecallStorage
from memserver.memory.relexing import relex
from memserver.memory.vector_upkeep import VectorUpkeep
from memserver.prompts import Prompts
from memserver.settings import Settings
from memserver.storage import languages, message_index
from memserver.storage.database import Database
from memserver.storage.erasure import REWRITE
from memserver.storage.expiry import erasing_expired
from memserver.storage.idempotency import IdempotencyKeys
from memserver.storage.job_runner import JobRunner
from memserver.storage.jobs import Handler
from memserver.storage.key_ring import KeyRing
from memserver.storage.turn_steps import forgetting_traces
from memserver.storage.watched import allow_long_statements
from memserver.tools import event_delivery
from memserver.tools.mcp_tools import McpConnections
from memserver.tools.outbound.addresses import Networks
from memserver.tools.outbound.webhooks import WebhookSender
from memserver.tools.tool import RunnableTool
from memserver.watchdog import Watchdog
from memserver.wiring.database import DatabaseUrls, database_urls, make_database
from memserver.wiring.providers import (
    Models,
    OtherEmbedders,
    check_addresses,
    embedding_model,
    make_embedder,
)
from memserver.wiring.telemetry import make_recorder
from memserver.wiring.tools import configured_mcp_servers, python_tools, registry


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    ready: bool
    detail: str


@dataclass(frozen=True, slots=True)
class FrontEnds:
    answers_asides: bool
    agents_per_template: int


@dataclass(frozen=True, slots=True)
class Services:
    database: Database
    deps: TurnDependencies
    worker: Worker
    conversation: Conversation
    archival: ArchivalStorage
    upkeep: VectorUpkeep
    documents: DocumentStore
    jobs: JobRunner
    keys: KeyRing
    idempotency: IdempotencyKeys
    mcp: McpConnections
    networks: Networks
    """Private networks that webhooks and MCP servers may be in."""
    import_max_bytes: int
    """Size of an agent file."""
    exports: asyncio.Semaphore
    """How many agents are exported at the same time: each has a connection to itself."""
    front_ends: FrontEnds
    pictures: PictureLimits
    ping_seconds: float
    """After which a stream that is silent has a comment."""
    cancel_on_hang_up: bool
    """Whether a turn is cancelled when the client that requested it hangs up."""
    results_dir: Path | None
    """With runs of evaluations and trainings."""

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
        await self.database.check()
        return "answers"

    async def _ask_model(self) -> str:
        model = self.deps.models.get(None)
        await model.check()
        known = ", ".join(map(str, filter(None, [model.name, model.profile])))
        return "; ".join(filter(None, [known, await self.deps.models.describe_engines()]))

    async def _ask_embedder(self) -> str:
        await self.archival.embedder.check()
        return self.archival.embedder.describe()


class Closing(Protocol):
    async def aclose(self) -> None: ...


def check_settings(settings: Settings) -> None:
    """Find what is wrong with the settings in themselves, before anything is started.

    Raises:
        SetupError: something is missing, or names what is not there.
    """
    embedding_model(settings)
    profile_of(settings.llm_profile)
    check_addresses(settings)
    check_files(settings)


def check_files(settings: Settings) -> None:
    """Find tools and files of the settings that are not there or can't be loaded. Raises SetupError."""
    python_tools(settings)
    for name in ("prompts_dir", "llm_tokenizer", "embedding_tokenizer"):
        path = getattr(settings, name)
        if path is not None and not path.exists():
            raise SetupError(
                f"MEMSERVER_{name.upper()} names {path}, which is not there.",
                hint="Fix the path, or unset it.",
            )


@asynccontextmanager
async def running_services(settings: Settings) -> AsyncIterator[Services]:
    """Everything, built from the settings and running while the block runs."""
    async with _reached(settings) as urls:
        models = Models(settings)
        inner = make_embedder(settings, load=False)
        embedder = BatchingEmbedder(inner)
        try:
            tools = python_tools(settings)
            async with assemble(urls.app, models, embedder, settings, tools) as services:
                loading = asyncio.create_task(_load_after(models, inner))
                gc.freeze()  # what stays: to look through it all again and again blocks the event loop
                yield services
                loading.cancel()
        finally:
            await embedder.aclose()
            await models.aclose()


@asynccontextmanager
async def _reached(settings: Settings) -> AsyncIterator[DatabaseUrls]:
    """The database of the settings; the event loop runs meanwhile."""
    with ExitStack() as stack:
        yield await asyncio.to_thread(stack.enter_context, database_urls(settings))


@asynccontextmanager
async def upkeep_alone(
    settings: Settings, app_url: str
) -> AsyncIterator[tuple[VectorUpkeep, Embedder]]:
    """What re-embeds collections, and the embedder of the settings, without a server."""
    database = Database(app_url, pool_size=2, prepared=settings.database_prepared_statements)
    embedder = make_embedder(settings)
    others = OtherEmbedders(embedder.model, settings)
    async with _open(database, others, embedder):
        with allow_long_statements():
            yield _upkeep(settings, database, ArchivalStorage(embedder, others)), embedder


@asynccontextmanager
async def memory_alone(
    settings: Settings, app_url: str
) -> AsyncIterator[tuple[tuple[Database, ArchivalStorage, RecallStorage], ModelSource | None]]:
    """The database, archival and recall storage, and the models if they have an endpoint: for memories without turns."""
    models = Models(settings) if settings.llm_base_url is not None else None
    embedder = BatchingEmbedder(make_embedder(settings))
    others = OtherEmbedders(embedder.model, settings)
    database = make_database(app_url, settings)
    async with _open(database, *([models] if models else []), others, embedder):
        archival = ArchivalStorage(embedder, others, mode=settings.archival_search)
        yield (database, archival, _recall(settings, embedder)), models


@asynccontextmanager
async def assemble(
    app_url: str,
    models: ModelSource,
    embedder: Embedder,
    settings: Settings,
    tools: Sequence[RunnableTool] = (),
    clock: Clock = utc_now,
) -> AsyncIterator[Services]:
    """The services over a database, models, an embedder, further tools and a clock of the caller's."""
    others = OtherEmbedders(embedder.model, settings)
    metrics = make_recorder(settings)
    database = make_database(app_url, settings, metrics)
    archival = ArchivalStorage(embedder, others, mode=settings.archival_search)
    webhooks = WebhookSender(settings.tool_networks)
    models.observe(metrics)
    mcp = McpConnections(database, configured_mcp_servers(settings), settings.tool_networks)
    deps = TurnDependencies(
        database=database,
        models=models,
        archival=archival,
        recall=_recall(settings, embedder),
        tools=registry(settings, tools, webhooks, mcp),
        prompts=Prompts(settings.prompts_dir),
        events=EventBus(),
        limits=_limits(settings),
        summary_model=settings.summary_model,
        summary_method=settings.summary_method,
        clock=clock,
        metrics=metrics,
    )
    async with _open(database, webhooks, others), _running(settings, deps, mcp) as services:
        yield services
    await asyncio.to_thread(metrics.close)


@asynccontextmanager
async def _running(
    settings: Settings, deps: TurnDependencies, mcp: McpConnections
) -> AsyncIterator[Services]:
    database, lease_seconds = deps.database, settings.lease_seconds
    watchdog = Watchdog(settings.blocked_seconds, settings.home / "turns")
    worker = Worker(deps, watchdog, name=_worker_name(), lease_seconds=lease_seconds)
    conversation = Conversation(deps, worker)
    upkeep = _upkeep(settings, database, deps.archival)
    ingesting = _document_store(settings, deps)
    events = EventJobs(database, conversation, worker)
    jobs = JobRunner(
        database,
        job_handlers(deps, upkeep, ingesting, settings)
        | {timers.JOB: events.timer, documents.UPLOADED: events.upload},
        at_once=settings.jobs_at_once,
        lease_seconds=lease_seconds,
        metrics=deps.metrics,
    )
    idempotency = IdempotencyKeys(
        database, lease_seconds=lease_seconds, lifetime=settings.idempotency_seconds
    )
    async with (
        watchdog.running(),
        mcp.running(),
        worker.running(),
        jobs.running(),
        idempotency.running(),
        erasing_expired(database),
        forgetting_traces(database, settings.trace_seconds),
    ):
        yield Services(
            database=database,
            deps=deps,
            worker=worker,
            conversation=conversation,
            archival=deps.archival,
            upkeep=upkeep,
            documents=ingesting,
            jobs=jobs,
            keys=KeyRing(database, settings.key_cache_seconds, deps.clock),
            idempotency=idempotency,
            mcp=mcp,
            networks=settings.tool_networks,
            import_max_bytes=settings.import_max_bytes,
            exports=asyncio.Semaphore(max(1, settings.database_pool_size // 4)),
            pictures=_picture_limits(settings),
            front_ends=FrontEnds(settings.front_end_requests, settings.agents_per_template),
            ping_seconds=settings.stream_ping_seconds,
            cancel_on_hang_up=settings.cancel_on_hang_up,
            results_dir=settings.results_dir,
        )


def _document_store(settings: Settings, deps: TurnDependencies) -> DocumentStore:
    return DocumentStore(
        deps.database,
        deps.archival.embedder_of,
        Sandbox(settings.document_timeout, settings.document_memory_mb),
        DocumentLimits(settings.document_max_bytes, settings.chunk_tokens, settings.chunk_overlap),
    )


@asynccontextmanager
async def _open(database: Database, *others: Closing) -> AsyncIterator[None]:
    """The database, open while the block runs; the others are closed before it."""
    await database.open()
    try:
        yield
    finally:
        for each in others:
            await each.aclose()
        await database.close()


def _limits(settings: Settings) -> Limits:
    return Limits(
        max_steps=settings.max_steps,
        max_output_tokens=settings.llm_max_output_tokens,
        prompt_order=settings.prompt_order,
        history=settings.history,
        pressure_alert=settings.pressure_alert,
        auto_recall=settings.auto_recall,
        auto_recall_floor=settings.auto_recall_floor,
        trace=settings.trace,
        turn_timeout=settings.turn_timeout,
        waiting_call_seconds=settings.waiting_call_seconds,
        calls=CallLimits(
            settings.tool_timeout, settings.tool_result_characters, _picture_limits(settings)
        ),
    )


def _picture_limits(settings: Settings) -> PictureLimits:
    return PictureLimits(settings.picture_max_bytes, settings.picture_max_pixels)


def _upkeep(settings: Settings, database: Database, archival: ArchivalStorage) -> VectorUpkeep:
    return VectorUpkeep(database, archival.embedder_of, index_memory=settings.vector_index_memory)


def job_handlers(
    deps: TurnDependencies, upkeep: VectorUpkeep, ingesting: DocumentStore, settings: Settings
) -> dict[str, Handler]:
    indexing = MessageIndexing(
        deps.database,
        deps.archival,
        embeds=settings.embed_messages,
        quiet=settings.index_after_seconds if settings.jobs_at_once else 0,  # else run by hand
    )
    return {
        COMPACT: partial(compact, deps),
        REWRITE: partial(rewrite, deps),
        message_index.JOB: indexing.run,
        documents.JOB: ingesting.run,
        **upkeep.handlers(),
        languages.JOB: partial(relex, deps.database),
        event_delivery.JOB: partial(event_delivery.deliver, deps.database, deps.tools.webhooks),
    }


def _recall(settings: Settings, embedder: Embedder) -> RecallStorage:
    return RecallStorage(embedder if settings.embed_messages else None)


async def _load_after(models: ModelSource, embedder: Embedder) -> None:
    """Load the embedder when the model has loaded: both take whole cores, and turns wait for the model."""
    await models.wait_until_ready()
    await embedder.embed([])


async def _check(name: str, asked: Awaitable[str]) -> Check:
    try:
        return Check(name, True, await asked)
    except MemserverError as error:
        return Check(name, False, f"{error.message} {error.hint}".strip())


def _worker_name() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
