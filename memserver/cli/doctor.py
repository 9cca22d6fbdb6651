"""The command `doctor`: what is wrong with an installation, and how to fix it. Asks every part for real."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import typer

from memserver.cli.console import console, print_table
from memserver.cli.local_engine import ENGINE_START_SECONDS, local_engine
from memserver.cli.options import read_settings
from memserver.embeddings.base import Embedder
from memserver.errors import DatabaseError, MemserverError, ModelError, SetupError
from memserver.llm.base import ChatModel
from memserver.messages import PromptMessage, ToolSpec
from memserver.settings import Settings
from memserver.storage.checks import MIN_PGVECTOR, MIN_POSTGRES
from memserver.storage.connecting import Prepared, TransactionLimits, find_route
from memserver.storage.inspect import inspect
from memserver.storage.migrate import NEWER, newest_revision
from memserver.wiring.database import reachable_database
from memserver.wiring.providers import Models, make_embedder

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

    Database, embedder and model are asked for real; nothing is changed.
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
    try:
        with reachable_database(settings) as urls:
            yield from examine_database(urls.owner, urls.app, settings.database_prepared_statements)
    except (SetupError, DatabaseError) as error:
        yield Finding("database", False, str(error), error.hint)
    yield from asyncio.run(_examine_models(settings))


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
        Finding(
            "migrations",
            report.can_be_used_by(newest),
            f"at {report.revision or 'nothing'}, newest is {newest}",
            NEWER if (report.revision or "") > newest else "Run `memserver migrate`.",
        ),
    ]


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
