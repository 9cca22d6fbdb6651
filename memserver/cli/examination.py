"""What is wrong with an installation, and how to fix it. Asks every part for real; changes nothing."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass

from memserver.embeddings.base import Embedder
from memserver.errors import DatabaseError, MemserverError
from memserver.llm.base import ChatModel
from memserver.messages import PromptMessage, ToolSpec
from memserver.storage.checks import MIN_PGVECTOR, MIN_POSTGRES
from memserver.storage.connecting import Limits, Prepared, find_route
from memserver.storage.inspect import inspect
from memserver.storage.migrate import newest_revision

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
        route = asyncio.run(find_route(app_url, Limits(), prepared)).describe()
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
            report.revision == newest,
            f"at {report.revision or 'nothing'}, newest is {newest}",
            "Run `memserver migrate`.",
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
