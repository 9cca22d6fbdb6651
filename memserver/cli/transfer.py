"""The commands `ingest`, `export` and `import`: files to a running server and back."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from memserver.cli.console import console
from memserver.cli.options import ApiKeyOption, UrlOption, server_url
from memserver.cli.running_server import RunningServer


def ingest(  # noqa: PLR0913 - a command's parameters are its options
    files: Annotated[list[Path], typer.Argument(help="Text, Markdown, HTML, PDF, DOCX, JSONL.")],
    agent: Annotated[str | None, typer.Option(help="Into this agent's own; name or id.")] = None,
    collection: Annotated[str | None, typer.Option(help="Into this one; name or id.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Of all passages; repeatable.")] = None,
    unique: Annotated[bool, typer.Option(help="Leave out content that is there already.")] = False,
    url: UrlOption = None,
    api_key: ApiKeyOption = None,
) -> None:
    """Send files to an agent or a collection of a running server.

    It waits until their passages are stored.
    """
    server = RunningServer(server_url(url), api_key)
    place = server.place(agent, collection)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        outcomes = server.ingest(place, files, progress, tags=tag or (), unique=unique)
    for outcome in outcomes:
        print(outcome.line, file=sys.stdout if outcome.well else sys.stderr)
    if not all(outcome.well for outcome in outcomes):
        raise typer.Exit(1)


def export_agent(
    agent: Annotated[str, typer.Argument(help="Name or id.")],
    file: Annotated[Path, typer.Argument(help="To be written, such as sam.zip.")],
    history: Annotated[
        bool, typer.Option(help="Every version of the working context, not only the last.")
    ] = False,
    vectors: Annotated[
        bool, typer.Option(help="The passages' vectors, so that they need not be made again.")
    ] = False,
    url: UrlOption = None,
    api_key: ApiKeyOption = None,
) -> None:
    """Write an agent with its whole memory to a file."""
    server = RunningServer(server_url(url), api_key)
    server.export(agent, file, history=history, vectors=vectors)
    print(f"{file}: {file.stat().st_size} bytes")


def import_agent(
    file: Annotated[Path, typer.Argument(help="Of `memserver export`, or Letta's (.af).")],
    name: Annotated[str | None, typer.Option(help="Instead of the file's.")] = None,
    keep_ids: Annotated[
        bool, typer.Option(help="The agent and its passages keep the file's ids.")
    ] = False,
    url: UrlOption = None,
    api_key: ApiKeyOption = None,
) -> None:
    """Make an agent of such a file, on a running server.

    All of it is made or nothing.
    """
    server = RunningServer(server_url(url), api_key)
    made = server.import_agent(file, name=name, keep_ids=keep_ids)
    counts = f"{made.messages} messages, {made.passages} passages"
    print(f"{made.agent.name} ({made.agent.id}): {counts}")
    for note in made.not_carried:
        what = f"{note.kind} {note.name}".rstrip()
        print(f"not carried: {what}: {note.reason}")
