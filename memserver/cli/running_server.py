"""Sends files to a running server, and fetches some: `memserver ingest`, `export` and `import`.

Files that are ingested are followed until their passages are stored.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from httpx2 import InvalidURL
from rich.progress import Progress

from memserver.client import Client
from memserver.client.failures import ServerUnreachable, UnexpectedAnswer
from memserver.client.models import Agent, Document, ImportedAgent
from memserver.client.retries import Retries
from memserver.errors import InvalidInput, MemserverError, NotFound, SetupError

LOOK_SECONDS = 0.5
"""Between two questions of how far the files are."""
ANSWER_SECONDS = 300
IMPORT_SECONDS = 24 * 3600
"""An import answers when all is stored."""
RETRIES = Retries(most=2)
"""Somebody waits, and may have given a wrong address."""
UNFINISHED = {"waiting", "running"}


@dataclass(frozen=True, slots=True)
class Outcome:
    line: str
    well: bool


@dataclass(frozen=True, slots=True)
class Place:
    """Where files go: to an agent's own collection, or to another one."""

    id: UUID
    is_agent: bool


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server by its address, such as http://127.0.0.1:8283, and the key by which it is asked."""

    url: str
    api_key: str | None = field(default=None, repr=False)

    def place(self, agent: str | None, collection: str | None) -> Place:
        """The place of an agent or of a collection, each by id or name.

        Raises:
            InvalidInput: neither is given, or both.
            NotFound: there is none of this name.
        """
        if (agent is None) == (collection is None):
            raise InvalidInput("Name an agent or a collection.", hint="--agent sam")
        with self.client() as client:
            if agent is not None:
                return Place(find_agent(client, agent).id, True)
            assert collection is not None
            return Place(client.collections.get(collection).id, False)

    def ingest(
        self,
        place: Place,
        files: Sequence[Path],
        progress: Progress,
        *,
        tags: Sequence[str] = (),
        unique: bool = False,
    ) -> list[Outcome]:
        """Send files and wait until each is taken in or has failed.

        Raises:
            SetupError: the server can't be reached.
        """
        outcomes, documents = [], []
        with self.client() as client:
            upload = client.documents.upload_to_agent if place.is_agent else client.documents.upload
            for file in files:
                try:
                    content = _content(file)
                    documents.append(upload(place.id, content, file.name, tags=tags, unique=unique))
                except (ServerUnreachable, UnexpectedAnswer):
                    raise
                except MemserverError as error:
                    line = f"{file}: {error.message} {error.hint}".rstrip()
                    outcomes.append(Outcome(line, False))
            _follow(client, documents, progress)
        return [*outcomes, *map(_outcome, documents)]

    def export(
        self, agent: str, file: Path, *, history: bool = False, vectors: bool = False
    ) -> None:
        """Write an agent's file; it has its name only when it is whole.

        Raises:
            NotFound: there is no such agent.
            InvalidInput: the file can't be written here.
            SetupError: the server can't be reached, or the connection broke.
        """
        found = self.place(agent, None)
        with self.client() as client:
            try:
                client.agents.export(found.id, file, history=history, vectors=vectors)
            except OSError as error:
                raise InvalidInput(f"{file}: {error.strerror}.") from error

    def import_agent(
        self, file: Path, *, name: str | None = None, keep_ids: bool = False
    ) -> ImportedAgent:
        """Make an agent of a file; what the server says of it.

        Raises:
            InvalidInput: the file can't be read here.
            MemserverError: the server refused it, with the server's code.
        """
        with self.client(IMPORT_SECONDS) as client:
            try:
                return client.agents.import_file(file, name=name, keep_ids=keep_ids)
            except OSError as error:
                raise InvalidInput(f"{file}: {error.strerror}.") from error

    @contextmanager
    def client(self, seconds: float = ANSWER_SECONDS) -> Iterator[Client]:
        """A client of it. Raises SetupError where no memserver answers."""
        try:
            with Client(self.url, api_key=self.api_key, timeout=seconds, retries=RETRIES) as client:
                yield client
        except (ServerUnreachable, UnexpectedAnswer, InvalidURL) as error:
            raise SetupError(
                f"No memserver answers at {self.url}: {error}",
                hint="Start it by `memserver serve`, or name its address: --url http://host:8283",
            ) from error


def find_agent(client: Client, named: str) -> Agent:
    """The agent of this id or name, which may have a slash, as a path may not. Raises NotFound."""
    if found := client.agents.find(named):
        return found
    with suppress(ValueError, NotFound):
        return client.agents.get(UUID(named))
    raise NotFound(f"There is no agent {named!r}.", hint="memserver agents list shows them.")


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InvalidInput(f"{error.strerror}.") from error


def _follow(client: Client, documents: list[Document], progress: Progress) -> None:
    """Wait until the documents have ended; their entries are kept up to date."""
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


def _outcome(document: Document) -> Outcome:
    if document.state == "done":
        return Outcome(f"{document.name}: {document.chunks_done} passages", True)
    if document.error is None:
        return Outcome(f"{document.name}: {document.state}", False)
    reason = f"{document.error.message} {document.error.hint}".rstrip()
    return Outcome(f"{document.name}: {reason}", False)
