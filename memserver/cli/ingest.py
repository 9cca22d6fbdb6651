"""The command `ingest`: files and folders to a running server, each with its result."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress, TaskID

from memserver.cli.console import console, print_json, print_table
from memserver.cli.options import ApiKeyOption, JsonOption, UrlOption
from memserver.cli.running_server import connect, find_agent
from memserver.client import Client
from memserver.client.failures import ServerUnreachable, UnexpectedAnswer
from memserver.client.models import Document, UploadedDocument
from memserver.errors import Forbidden, InvalidApiKey, InvalidInput, MemserverError, MissingApiKey

LOOK_SECONDS = 0.5
LOOKED_AT = 10
"""Documents whose progress is requested at a time; they are worked on in the order in which they came."""
UNFINISHED = {"waiting", "running"}
Upload = Callable[[bytes, str], UploadedDocument]


@dataclass
class SentFile:
    """A file, and what became of it; `state` is a document's, or `not sent`."""

    path: Path
    name: str
    document: Document | None = None
    is_new: bool = True
    error: str = ""

    @property
    def state(self) -> str:
        if self.document is None:
            return "failed" if self.error else "not sent"
        if self.document.state == "done":
            return "stored" if self.is_new else "already there"
        return self.document.state

    @property
    def remarks(self) -> str:
        remarks = [self.error] if self.error else []
        if (document := self.document) is not None:
            if not self.is_new and document.name != self.name:
                remarks.append(f"As {document.name}.")
            if document.error is not None:
                remarks.append(f"{document.error.message} {document.error.hint}".rstrip())
            remarks += document.warnings
        return " ".join(remarks)


def ingest(  # noqa: PLR0913 - a command's parameters are its options
    files: Annotated[
        list[Path], typer.Argument(help="Files, and folders with all that is in them.")
    ],
    agent: Annotated[str | None, typer.Option(help="Into this agent's own; name or id.")] = None,
    collection: Annotated[str | None, typer.Option(help="Into this one; name or id.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Of all passages; repeatable.")] = None,
    unique: Annotated[
        bool, typer.Option(help="Content that is there is not stored again; it gets the tags.")
    ] = False,
    glob: Annotated[
        list[str] | None,
        typer.Option(help="Of folders only files whose name or path fits, as *.md; repeatable."),
    ] = None,
    as_json: JsonOption = False,
    url: UrlOption = None,
    api_key: ApiKeyOption = None,
) -> None:
    """Send files and folders to an agent or a collection of a running server.

    It waits until their passages are stored, and says of each file what became of it. Hidden files of folders
    are left out. The exit status is 1 if a file could not be stored.
    """
    if (agent is None) == (collection is None):
        raise InvalidInput("Name an agent or a collection.", hint="--agent sam")
    results = list(_find(files, glob or ()))
    if not results:
        raise InvalidInput(
            "There is no such file in these folders.",
            hint="Hidden files are left out; --glob '*.md' is compared with names and paths.",
        )
    with connect(url, api_key) as client:
        send = client.documents.upload if agent is None else client.documents.upload_to_agent
        found = (
            client.collections.get(collection or "") if agent is None else find_agent(client, agent)
        )

        def upload(content: bytes, name: str) -> UploadedDocument:
            return send(found.id, content, name, tags=tag or (), unique=unique)

        with _reported(results, as_json):
            bar = Progress(console=console, transient=True, disable=not console.is_terminal)
            with bar as progress:
                for result in progress.track(results, description="sending"):
                    _send(result, upload)
                _follow(client, results, progress)
    if any(result.state not in {"stored", "already there"} for result in results):
        raise typer.Exit(1)


def _find(given: Sequence[Path], globs: Sequence[str]) -> Iterator[SentFile]:
    """The files that are meant, each once; those of a folder are named by their path within it, in order."""
    seen: set[Path] = set()
    for path in given:
        unreadable: list[OSError] = []
        folder = path.is_dir()
        for file in _files_within(path, globs, unreadable.append) if folder else [path]:
            if (absolute := file.absolute()) not in seen:
                seen.add(absolute)
                yield SentFile(file, _text(file.relative_to(path) if folder else file.name))
        for error in unreadable:
            yield SentFile(Path(error.filename), "", error=f"{error.strerror}.")


def _files_within(
    folder: Path, globs: Sequence[str], report: Callable[[OSError], None]
) -> Iterator[Path]:
    for at, folders, names in os.walk(folder, onerror=report):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(name for name in names if not name.startswith(".")):
            file = Path(at, name)
            inner = str(file.relative_to(folder))
            fits = not globs or any(fnmatch(name, each) or fnmatch(inner, each) for each in globs)
            if fits and (file.is_file() or not file.exists()):  # neither pipes nor devices
                yield file


def _text(path: Path | str) -> str:
    """A path as text, what is not UTF-8 in it escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _send(result: SentFile, upload: Upload) -> None:
    try:
        result.document = document = upload(result.path.read_bytes(), result.name)
        result.is_new = document.is_new
    except OSError as error:
        result.error = f"{error.strerror}."
    except (ServerUnreachable, UnexpectedAnswer, MissingApiKey, InvalidApiKey, Forbidden):
        raise  # so will the next file be answered
    except MemserverError as error:
        result.error = f"{error.message} {error.hint}".rstrip()


def _follow(client: Client, results: Sequence[SentFile], progress: Progress) -> None:
    """Wait until the documents have ended; the results are kept up to date."""
    task = progress.add_task("storing passages", total=None)
    while unfinished := [each for each in results if each.state in UNFINISHED]:
        _show(progress, task, results)
        time.sleep(LOOK_SECONDS)
        for result in unfinished[:LOOKED_AT]:
            assert result.document is not None
            result.document = client.documents.get(result.document.id)


def _show(progress: Progress, task: TaskID, results: Sequence[SentFile]) -> None:
    documents = [each.document for each in results if each.document is not None]
    totals = [each.chunks_total for each in documents if each.state != "failed"]
    known = [total for total in totals if total is not None]
    progress.update(
        task,
        completed=sum(each.chunks_done for each in documents),
        total=sum(known) if len(known) == len(totals) else None,
    )


@contextmanager
def _reported(results: Sequence[SentFile], as_json: bool) -> Iterator[None]:
    """Print what became of the files, also of those that were sent before the server or the user stopped."""
    try:
        yield
    finally:
        titles = ("file", "result", "passages", "remarks")
        lines = [
            (
                _text(each.path),
                each.state,
                each.document.chunks_done if each.document else 0,
                each.remarks,
            )
            for each in results
        ]
        if as_json:
            print_json([dict(zip(titles, line, strict=True)) for line in lines])
        else:
            print_table(titles, [[*map(str, line)] for line in lines], sentences=("remarks",))
            states = [each.state for each in results]
            counted = ", ".join(f"{states.count(each)} {each}" for each in dict.fromkeys(states))
            console.print(f"{counted}.")
