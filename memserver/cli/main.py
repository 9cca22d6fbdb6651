"""The command line: serve, chat, migrate, doctor, ingest, export, import, reembed, engine, models, keys, tenants, eval, train."""

import asyncio
import logging.config
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from typing import Annotated, TypeVar

import typer
import uvicorn
from pydantic import ValidationError
from rich.progress import Progress
from rich.table import Table

from memserver import __version__
from memserver.cli.chat.session import Wishes, chat
from memserver.cli.console import console, say_error
from memserver.cli.doctor import Finding, examine_database, examine_embedder, examine_model
from memserver.cli.keys import check_keys, keys, tenants
from memserver.cli.local_engine import ENGINE_START_SECONDS, local_engine, watch
from memserver.cli.models import models
from memserver.cli.plugins import ExtensibleGroup
from memserver.cli.transfer import RunningServer
from memserver.client import Client
from memserver.errors import MemserverError, ModelError, SetupError
from memserver.local.engine.address import told_in
from memserver.local.engine.install import TORCH_INDEX, install_engine
from memserver.local.engine.paths import EnginePaths
from memserver.settings import Settings
from memserver.storage.api_keys import DEFAULT_TENANT
from memserver.storage.migrate import newest_revision
from memserver.wiring.database import database_urls, reachable_database
from memserver.wiring.providers import Models, make_embedder
from memserver.wiring.services import check_settings, memory_alone, upkeep_alone

T = TypeVar("T")

app = typer.Typer(
    cls=ExtensibleGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
engine = typer.Typer(no_args_is_help=True, help="The local model: vLLM on this machine's CPU.")
app.add_typer(engine, name="engine")
app.add_typer(models, name="models")
app.add_typer(keys, name="keys")
app.add_typer(tenants, name="tenants")

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"level": "WARNING", "handlers": ["stderr"]},
    "loggers": {"memserver": {"level": "INFO"}},
}
"""For this process and its workers alike."""
GRACE_SECONDS = 5
"""What running requests get when the server is told to end; their turns go on elsewhere."""
KEEP_ALIVE_SECONDS = 75
"""Longer than clients keep an idle connection, so that none sends on one that we just closed."""


def main() -> None:
    """Run the command; an error of ours is two lines on stderr and exit status 1."""
    try:
        app()
    except MemserverError as error:
        say_error(error)
        sys.exit(1)
    except ValidationError as error:
        for problem in error.errors():
            name = "_".join(["MEMSERVER", *(str(part).upper() for part in problem["loc"])])
            print(f"memserver: {name}: {problem['msg']}", file=sys.stderr)
        print("  Mend it in the environment, in .env or on the command line.", file=sys.stderr)
        sys.exit(1)


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes that serve.")] = None,
    tools: Annotated[
        list[str] | None, typer.Option(help="A Python module with tools; may be given again.")
    ] = None,
) -> None:
    """Serve agents over HTTP, with the embedded Postgres and the local model unless others are set."""
    named = ",".join(tools) if tools else None
    settings = _settings(host=host, port=port, workers=workers, tools=named)
    check_settings(settings)
    _check_address(settings.host, settings.port)
    logging.config.dictConfig(LOGGING)
    # uvicorn raises the signal again when it has shut down; this lets our own clean-up run then.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with ExitStack() as stack:
        urls = stack.enter_context(database_urls(settings))
        check_keys(urls.app, settings.host)
        if settings.llm_base_url is None:
            local = stack.enter_context(local_engine(settings))
            stack.enter_context(told_in(EnginePaths(settings.home).address, local.base_url))
            Thread(target=watch, args=[local], daemon=True).start()
        console.print(f"memserver {__version__} on http://{settings.host}:{settings.port}/docs")
        uvicorn.run(
            "memserver.api.app:create_app",
            factory=True,
            host=settings.host,
            port=settings.port,
            workers=settings.workers,
            log_config=LOGGING,
            timeout_graceful_shutdown=GRACE_SECONDS,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
        )


@app.command("chat")
def chat_command(
    agent: Annotated[str, typer.Argument(help="The agent's name or id.")],
    create: Annotated[bool, typer.Option("--create", help="Make the agent if need be.")] = False,
    message: Annotated[
        str | None, typer.Option("--message", "-m", help="Say this, print the answer, and end.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="Of the server; left out: on this machine, at its port.")
    ] = None,
    api_key: Annotated[str | None, typer.Option(envvar="MEMSERVER_API_KEY")] = None,
) -> None:
    """Talk with an agent; /help lists the commands. Through a pipe each line is a message."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    here = f"http://127.0.0.1:{_settings().port}"
    with Client(url or os.environ.get("MEMSERVER_URL") or here, api_key=api_key) as client:
        chat(client, agent, Wishes(create=create, message=message, editor=editor))


@app.command()
def migrate() -> None:
    """Bring the database to the newest schema."""
    with database_urls(_settings()):
        console.print(f"The database is at {newest_revision()}.")


@app.command()
def doctor() -> None:
    """Ask database, embedder and model for real; print what is wrong and how to mend it."""
    settings = _settings()
    table = Table("", "what", "found", "what to do")
    wrong = 0
    for finding in _examine(settings):
        wrong += not finding.well
        mend = "" if finding.well else finding.mend
        table.add_row("✓" if finding.well else "✗", finding.name, finding.detail, mend)
    console.print(table)
    console.print("All is well." if not wrong else f"{wrong} of {table.row_count} need mending.")
    if wrong:
        raise typer.Exit(1)


@app.command()
def reembed(
    background: Annotated[
        bool, typer.Option(help="Queue it as jobs of the processes that serve, and return.")
    ] = False,
) -> None:
    """Give every collection vectors of the embedding model that is set now; the old ones serve meanwhile.

    Interrupted, it goes on where it was when it is run again.
    """
    settings = _settings()
    check_settings(settings)
    with database_urls(settings) as urls:
        asyncio.run(_reembed(settings, urls.app, background=background))


async def _reembed(settings: Settings, app_url: str, *, background: bool) -> None:
    async with upkeep_alone(settings, app_url) as (upkeep, embedder):
        outdated = await upkeep.outdated(embedder)
        what = f"{len(outdated)} collections to be re-embedded with {embedder.model}."
        if background or not outdated:
            await upkeep.queue(outdated, embedder.model)
            console.print(f"Queued: {what}" if outdated else "All collections are of that model.")
            return
        console.print(what)
        with Progress(console=console, transient=True) as bar:
            total = sum(each.passage_count for each in outdated)
            task = bar.add_task("re-embedding", total=total)
            done = 0
            for each in outdated:
                async for at in upkeep.reembed(each, embedder):
                    bar.update(task, completed=done + at.stored, description=at.state)
                done += each.passage_count
        console.print(f"Done: {len(outdated)} collections, {total} passages.")


@app.command()
def ingest(  # noqa: PLR0913 - a command's parameters are its options
    files: Annotated[list[Path], typer.Argument(help="Text, Markdown, HTML, PDF, DOCX, JSONL.")],
    agent: Annotated[str | None, typer.Option(help="Into this agent's own; name or id.")] = None,
    collection: Annotated[str | None, typer.Option(help="Into this one; name or id.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Of all passages; repeatable.")] = None,
    unique: Annotated[bool, typer.Option(help="Leave out content that is there already.")] = False,
    url: Annotated[str | None, typer.Option(help="The server; else that of the settings.")] = None,
    api_key: Annotated[str | None, typer.Option(envvar="MEMSERVER_API_KEY")] = None,
) -> None:
    """Send files to a running server, and wait until their passages are stored."""
    settings = _settings()
    server = RunningServer(url or f"http://{settings.host}:{settings.port}", api_key)
    place = server.place(agent, collection)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        outcomes = server.take_in(place, files, progress, tags=tag or (), unique=unique)
    for outcome in outcomes:
        print(outcome.line, file=sys.stdout if outcome.well else sys.stderr)
    if not all(outcome.well for outcome in outcomes):
        raise typer.Exit(1)


@app.command("export")
def export_agent(
    agent: Annotated[str, typer.Argument(help="Name or id.")],
    file: Annotated[Path, typer.Argument(help="To be written, such as sam.zip.")],
    history: Annotated[
        bool, typer.Option(help="Every version of the working context, not only the last.")
    ] = False,
    vectors: Annotated[
        bool, typer.Option(help="The passages' vectors, so that they need not be made anew.")
    ] = False,
    url: Annotated[str | None, typer.Option(help="The server; else that of the settings.")] = None,
    api_key: Annotated[str | None, typer.Option(envvar="MEMSERVER_API_KEY")] = None,
) -> None:
    """Write an agent of a running server with its whole memory to a file."""
    settings = _settings()
    server = RunningServer(url or f"http://{settings.host}:{settings.port}", api_key)
    server.export(agent, file, history=history, vectors=vectors)
    print(f"{file}: {file.stat().st_size} bytes")


@app.command("import")
def import_agent(
    file: Annotated[Path, typer.Argument(help="Of `memserver export`, or Letta's (.af).")],
    name: Annotated[str | None, typer.Option(help="Instead of the file's.")] = None,
    keep_ids: Annotated[
        bool, typer.Option(help="The agent and its passages keep the file's ids.")
    ] = False,
    url: Annotated[str | None, typer.Option(help="The server; else that of the settings.")] = None,
    api_key: Annotated[str | None, typer.Option(envvar="MEMSERVER_API_KEY")] = None,
) -> None:
    """Make an agent of a file on a running server; all of it or nothing."""
    settings = _settings()
    server = RunningServer(url or f"http://{settings.host}:{settings.port}", api_key)
    made = server.take_in_agent(file, name=name, keep_ids=keep_ids)
    counts = f"{made.messages} messages, {made.passages} passages"
    print(f"{made.agent.name} ({made.agent.id}): {counts}")
    for note in made.not_carried:
        what = f"{note.kind} {note.name}".rstrip()
        print(f"not carried: {what}: {note.reason}")


@app.command()
def mcp(
    agent: Annotated[
        str | None, typer.Option(help="Name or id: offer this agent's memory alone.")
    ] = None,
    tenant: Annotated[str, typer.Option(help="Whose agents.")] = DEFAULT_TENANT,
    http_port: Annotated[
        int | None,
        typer.Option(help="Serve streamable HTTP at /mcp on 127.0.0.1 instead of stdio."),
    ] = None,
) -> None:
    """Offer the agents' memories to another agent, as an MCP server on stdio."""
    settings = _settings()
    check_settings(settings)
    logging.config.dictConfig(LOGGING)
    with database_urls(settings) as urls:
        asyncio.run(_mcp(settings, urls.app, (tenant, agent), http_port))


async def _mcp(
    settings: Settings, app_url: str, offered: tuple[str, str | None], port: int | None
) -> None:
    from memserver.api.mcp_server import Memories, always, make_server  # noqa: PLC0415 - a second long

    async with memory_alone(settings, app_url) as (database, archival):
        tenant, agent = offered
        memories = Memories(database, archival, always(tenant), agent)
        await memories.check(tenant)
        server = make_server(memories)
        if port is None:
            await server.run_stdio_async()
        else:
            await server.run_streamable_http_async(host="127.0.0.1", port=port)


@engine.command("install")
def engine_install() -> None:
    """Install the local model's engine in an environment of its own; quick when it is there."""
    settings = _settings()
    install_engine(
        settings.home, say=console.print, torch_index=settings.torch_index or TORCH_INDEX
    )


def _settings(**overrides: object) -> Settings:
    """The settings, the command line's before the environment's; children read the same ones."""
    for name, value in overrides.items():
        if value is not None:
            os.environ[f"MEMSERVER_{name.upper()}"] = str(value)
    return Settings()


def _check_address(host: str, port: int) -> None:
    """Find out whether we can listen there, before anything is started for it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        raise SetupError(
            f"Can't listen on {host}, port {port}: {error.strerror}.",
            hint="End what uses it, or choose another one: memserver serve --port 8284.",
        ) from error


def _examine(settings: Settings) -> Iterator[Finding]:
    try:
        with reachable_database(settings) as urls:
            yield from examine_database(urls.owner)
    except SetupError as error:
        yield Finding("database", False, error.message, error.hint)
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
                local = stack.enter_context(local_engine(settings))
                console.print("Starting the local engine …")
                await local.wait_until_ready(within=ENGINE_START_SECONDS)
        except (SetupError, ModelError) as error:
            return [*findings, Finding("model", False, error.message, error.hint)]
        models = Models(Settings())
        findings += [finding async for finding in examine_model(models.get(None))]
        await models.aclose()
    return findings


if __name__ == "__main__":
    main()
