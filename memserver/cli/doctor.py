"""The command `doctor`: what is wrong with an installation, and how to fix it. Asks every part for real."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from difflib import get_close_matches

import typer

from memserver.cli.console import console, print_table
from memserver.cli.local_engine import ENGINE_START_SECONDS, local_engine
from memserver.cli.options import read_settings
from memserver.embeddings.base import Embedder
from memserver.errors import DatabaseError, MemserverError, ModelError, SetupError, ToolError
from memserver.llm.base import ChatModel
from memserver.messages import PromptMessage, ToolSpec
from memserver.settings import Settings
from memserver.storage import replica
from memserver.storage.checks import APP_ROLE, MIN_PGVECTOR, MIN_POSTGRES, check_app_url
from memserver.storage.connecting import Prepared, TransactionLimits, find_route
from memserver.storage.inspect import ReplicaReport, each_host, inspect, inspect_replica
from memserver.storage.migrate import NEWER, newest_revision
from memserver.tools.mcp_tools import connect
from memserver.tools.outbound.mcp import HttpServer, StdioServer
from memserver.wiring.database import reachable_database, replica_url
from memserver.wiring.providers import Models, make_embedder
from memserver.wiring.services import check_files
from memserver.wiring.tools import configured_mcp_servers

SEND = ToolSpec(
    "send_message",
    "Say something to the person.",
    {
        "type": "object",
        "properties": {"message": {"type": "string", "maxLength": 60}},
        "required": ["message"],
        "additionalProperties": False,
    },
)
ENGLISH = ("all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2")
"""Embedding models that know English alone: the packaged one, also at an endpoint."""
PROMPT = (
    PromptMessage("system", "You act only by calling tools."),
    PromptMessage("user", "Say hello."),
)

WRITES = "it takes writes: it is no standby"
REPLICA_SECONDS = 5.0  # how long one that is behind is watched
ASSUMED = ", assumed: nobody says; MEMSERVER_LLM_CONTEXT_WINDOW sets it"
ESTIMATED = (
    "estimated, until usage shows better: the endpoint has no /tokenize that counts; "
    "MEMSERVER_LLM_TOKENIZER counts exactly"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; `remedy` says what to do where it is not well."""

    name: str
    well: bool
    detail: str
    remedy: str = ""


def doctor() -> None:
    """Find out what is wrong, and how to fix it.

    Database, replica, embedder, model and MCP servers are asked for real; nothing is changed.
    """
    settings = read_settings()
    findings = list(_examine(settings))
    rows = [
        (f"{'✓' if each.well else '✗'} {each.name}", each.detail, "" if each.well else each.remedy)
        for each in findings
    ]
    print_table(("what", "found", "what to do"), rows, sentences=("found", "what to do"))
    wrong = sum(not each.well for each in findings)
    console.print("All is well." if not wrong else f"{wrong} of {len(findings)} need fixing.")
    if wrong:
        raise typer.Exit(1)


def _examine(settings: Settings) -> Iterator[Finding]:
    yield examine_settings(settings, os.environ)
    try:
        with reachable_database(settings) as urls:
            yield from examine_database(urls.owner, urls.app, settings.database_prepared_statements)
            if (read_url := replica_url(settings)) is not None:
                yield from examine_replicas(urls.app, read_url)
    except (SetupError, DatabaseError) as error:
        yield Finding("database", False, str(error), error.hint)
    yield from asyncio.run(_examine_models(settings))
    for name, server in configured_mcp_servers(settings).items():
        yield asyncio.run(examine_mcp_server(name, server))


def examine_settings(settings: Settings, environment: Mapping[str, str]) -> Finding:
    """Names that are nearly a setting's, and files and tools that are not there."""
    known = [f"MEMSERVER_{name.upper()}" for name in Settings.model_fields]
    known += [f"{name}_FILE" for name in known]
    given = [name.upper() for name in environment if name.upper().startswith("MEMSERVER_")]
    for name in sorted({*given} - {*known}):
        if meant := get_close_matches(name, known, n=1, cutoff=0.9):
            return Finding("settings", False, f"{name} is none", f"Is it {meant[0]}?")
    try:
        check_files(settings)
    except SetupError as error:
        return Finding("settings", False, error.message, error.hint)
    return Finding("settings", True, f"{len({*given} & {*known})} in the environment")


async def _examine_models(settings: Settings) -> list[Finding]:
    try:
        embedder = make_embedder(settings)
    except SetupError as error:
        findings = [Finding("embedder", False, error.message, error.hint)]
    else:
        findings = [await examine_embedder(embedder)]
        await embedder.aclose()
    with ExitStack() as stack:
        try:
            if settings.llm_base_url is None:
                local, settings = stack.enter_context(local_engine(settings))
                console.print("Starting the local engine …")
                await local.wait_until_ready(within=ENGINE_START_SECONDS)
            models = Models(settings)
        except (SetupError, ModelError) as error:
            return [*findings, Finding("model", False, error.message, error.hint)]
        findings += [finding async for finding in examine_model(models.get(None))]
        await models.aclose()
    return findings


def examine_database(owner_url: str, app_url: str, prepared: Prepared = "auto") -> list[Finding]:
    try:
        report = inspect(owner_url)
    except MemserverError as error:
        remedy = "Check MEMSERVER_DATABASE_URL and that the server runs."
        return [Finding("database", False, str(error), remedy)]
    findings = [Finding("application role", *_examine_app_role(app_url))] if report.revision else []
    route = ""
    with suppress(
        DatabaseError
    ):  # before the first migration the role of the application may be missing
        route = asyncio.run(find_route(app_url, TransactionLimits(), prepared)).describe()
    vector = report.pgvector
    fits = vector is not None and tuple(map(int, vector.split(".")[:2])) >= MIN_PGVECTOR
    newest = newest_revision()
    return [
        Finding(
            "database",
            report.server_number >= MIN_POSTGRES,
            ", ".join(filter(None, [f"PostgreSQL {report.server}", route])),
            "memserver needs PostgreSQL 15 or newer.",
        ),
        Finding(
            "pgvector",
            fits,
            vector or "missing",
            "Install pgvector 0.8 or newer; then, as a superuser: CREATE EXTENSION vector;",
        ),
        *findings,
        Finding(
            "migrations",
            report.can_be_used_by(newest),
            f"at {report.revision or 'nothing'}, newest is {newest}",
            NEWER if (report.revision or "") > newest else "Run `memserver migrate`.",
        ),
    ]


def _examine_app_role(url: str) -> tuple[bool, str, str]:
    try:
        check_app_url(url)
    except SetupError as error:
        return False, error.message, error.hint
    return True, "bound by row-level security", ""


def examine_replicas(app_url: str, url: str) -> Iterator[Finding]:
    """Each server of MEMSERVER_DATABASE_READ_URL, as searches would use it."""
    hosts = each_host(url)
    for host, its_url in hosts.items():
        name = f"replica {host}"
        try:
            report = inspect_replica(app_url, its_url, REPLICA_SECONDS)
        except DatabaseError as error:
            remedy = "Check MEMSERVER_DATABASE_READ_URL, and that the standby runs; until then the primary searches."
            yield Finding(name, False, str(error), remedy)
            continue
        problem, remedy = _problem_of(report)
        if problem == WRITES and len(hosts) > 1:
            yield Finding(name, True, "it takes writes, so that it is no replica now")
            continue
        found = f"a standby, {report.lag:.2f} s after the primary"
        if not report.has_feedback:
            found += "; with hot_standby_feedback = on its replay would cancel no search"
        yield Finding(name, not problem, problem or found, remedy)


def _problem_of(report: ReplicaReport) -> tuple[str, str]:
    """Why a replica isn't used, and what to do; empty where it is."""
    role = "Name the role of MEMSERVER_DATABASE_APP_URL in MEMSERVER_DATABASE_READ_URL."
    if not report.is_standby:
        return WRITES, "Name a streaming standby in MEMSERVER_DATABASE_READ_URL, or unset it."
    if not report.is_of_primary:
        remedy = "Name a standby of the server of MEMSERVER_DATABASE_URL, and the same database."
        return "it is a standby of another server, or another database", remedy
    if not report.is_bound or not report.is_app:
        what = (
            f"is no member of {APP_ROLE}"
            if report.is_bound
            else "is not bound by row-level security"
        )
        return f"its role {report.role} {what}", role
    if report.missing or report.lag > replica.BEHIND_SECONDS:
        lacks = f", and still lacks {report.missing:,} bytes of WAL" if report.missing else ""
        remedy = (
            f"Searches wait {replica.BEHIND_SECONDS:g} s for it, then run on the primary: see its load, "
            "pg_stat_replication on the primary, and pg_is_wal_replay_paused() on the replica."
        )
        return f"it is {report.lag:.2f} s after the primary{lacks}", remedy
    return "", ""


async def examine_mcp_server(name: str, server: HttpServer | StdioServer) -> Finding:
    try:
        connection = await connect(server)
        try:
            count = len(await connection.tools())
        finally:
            await connection.close()
    except ToolError as error:
        remedy = "Check it in MEMSERVER_MCP_SERVERS; agents do without its tools meanwhile."
        return Finding(f"MCP server {name}", False, error.message, remedy)
    return Finding(f"MCP server {name}", True, f"{count} tools")


async def examine_embedder(embedder: Embedder) -> Finding:
    start = time.monotonic()
    try:
        await embedder.embed(["hello"])
        took = time.monotonic() - start
        await embedder.embed(["hello"] * embedder.batch_size)  # the endpoint may take fewer
    except MemserverError as error:
        remedy = error.hint or "Check MEMSERVER_EMBEDDING_BASE_URL and _MODEL."
        return Finding("embedder", False, error.message, remedy)
    detail = f"{embedder.describe()}, {took:.1f} s"
    if embedder.model in ENGLISH:
        detail += (
            "; it is for English: for other languages set MEMSERVER_EMBEDDING_MODEL to a multilingual "
            "one, such as intfloat/multilingual-e5-small or BAAI/bge-m3"
        )
    return Finding("embedder", True, detail)


async def examine_model(model: ChatModel) -> AsyncIterator[Finding]:
    try:
        window = await model.context_window()
        said = ASSUMED if model.window_is_assumed else ""
        yield Finding("context window", True, f"{window} tokens{said}")
        await model.count_tokens(["Hello."])
        counted = "exactly" if model.counts_exactly else ESTIMATED
        yield Finding("token counts", True, counted)
        start = time.monotonic()
        reply = await model.call_tool(PROMPT, [SEND], max_tokens=200)
    except MemserverError as error:
        remedy = error.hint or "Check MEMSERVER_LLM_BASE_URL, _MODEL and _MODE."
        yield Finding("model", False, ": ".join(filter(None, [model.name, error.message])), remedy)
        return
    took = time.monotonic() - start
    text = str(reply.call.arguments.get("message", ""))[:60]
    called = f"{model.name} called {reply.call.name}({text!r}) in {took:.1f} s"
    for finding in _how_it_is_asked(model):
        yield finding
    yield Finding("model", True, f"{called}, mode {model.mode}" if model.mode else called)


def _how_it_is_asked(model: ChatModel) -> Iterator[Finding]:
    """What the endpoint doesn't take as it was tried first; nothing where it takes all."""
    report = model.profile
    if report is not None and (unusual := str(report).partition(", ")[2]):
        yield Finding("endpoint's profile", True, unusual)
    for change in report.changes if report is not None else ():
        yield Finding("adjusted", True, str(change))
