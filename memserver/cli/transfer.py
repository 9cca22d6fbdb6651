"""The commands `ingest`, `export` and `import`: files to a running server and back."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from memserver.cli.console import console
from memserver.cli.options import ApiKeyOption, UrlOption
from memserver.cli.running_server import connect, find_agent
from memserver.client import Client
from memserver.client.failures import ServerUnreachable, UnexpectedAnswer
from memserver.client.models import Document
from memserver.errors import InvalidInput, MemserverError

LOOK_SECONDS = 0.5
IMPORT_SECONDS = 24 * 3600
"""An import answers when all is stored."""
UNFINISHED = {"waiting", "running"}


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
    if (agent is None) == (collection is None):
        raise InvalidInput("Name an agent or a collection.", hint="--agent sam")
    failures: list[str] = []
    documents: list[Document] = []
    with connect(url, api_key) as client:
        upload = client.documents.upload if agent is None else client.documents.upload_to_agent
        found = (
            client.collections.get(collection or "") if agent is None else find_agent(client, agent)
        )
        for file in files:
            try:
                with _report_unreadable(""):
                    content = file.read_bytes()
                documents.append(
                    upload(found.id, content, file.name, tags=tag or (), unique=unique)
                )
            except (ServerUnreachable, UnexpectedAnswer):
                raise
            except MemserverError as error:
                failures.append(f"{file}: {error.message} {error.hint}".rstrip())
        _follow(client, documents)
    failures += [_failure(each) for each in documents if each.state != "done"]
    for line in failures:
        print(line, file=sys.stderr)
    for document in documents:
        if document.state == "done":
            print(f"{document.name}: {document.chunks_done} passages")
    if failures:
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
    with connect(url, api_key) as client, _report_unreadable(f"{file}: "):
        found = find_agent(client, agent)
        client.agents.export(found.id, file, history=history, vectors=vectors)
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
    with connect(url, api_key, IMPORT_SECONDS) as client, _report_unreadable(f"{file}: "):
        made = client.agents.import_file(file, name=name, keep_ids=keep_ids)
    counts = f"{made.messages} messages, {made.passages} passages"
    print(f"{made.agent.name} ({made.agent.id}): {counts}")
    for note in made.not_carried:
        what = f"{note.kind} {note.name}".rstrip()
        print(f"not carried: {what}: {note.reason}")


@contextmanager
def _report_unreadable(prefix: str) -> Iterator[None]:
    """What can't be read or written on this machine is an error of the command's input."""
    try:
        yield
    except OSError as error:
        raise InvalidInput(f"{prefix}{error.strerror}.") from error


def _follow(client: Client, documents: list[Document]) -> None:
    """Wait until the documents have ended; their entries are kept up to date."""
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("storing passages", total=None)
        while any(each.state in UNFINISHED for each in documents):
            time.sleep(LOOK_SECONDS)
            for at, document in enumerate(documents):
                if document.state in UNFINISHED:
                    documents[at] = client.documents.get(document.id)
            totals = [each.chunks_total for each in documents if each.state != "failed"]
            known = [total for total in totals if total is not None]
            progress.update(
                task,
                completed=sum(each.chunks_done for each in documents),
                total=sum(known) if len(known) == len(totals) else None,
            )


def _failure(document: Document) -> str:
    if document.error is None:
        return f"{document.name}: {document.state}"
    return f"{document.name}: {document.error.message} {document.error.hint}".rstrip()
