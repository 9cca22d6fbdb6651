"""Sends files to a running server, and fetches some: `memserver ingest`, `export` and `import`.

Files that are ingested are followed until their passages are stored.
"""

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen
from uuid import UUID

from rich.progress import Progress

from memserver.errors import InvalidInput, MemserverError, NotFound, SetupError

LOOK_SECONDS = 0.5
"""Between two questions of how far the files are."""
ANSWER_SECONDS = 300
IMPORT_SECONDS = 24 * 3600
"""An import answers when all is stored."""
UNFINISHED = {"waiting", "running"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a file, as a person reads it."""

    line: str
    well: bool


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server by its address, such as http://127.0.0.1:8283, and the key by which it is asked."""

    url: str
    api_key: str | None = None

    def place(self, agent: str | None, collection: str | None) -> str:
        """The path of an agent or of a collection, each by id or name.

        Raises:
            InvalidInput: neither is given, or both.
            NotFound: there is none of this name.
        """
        if (agent is None) == (collection is None):
            raise InvalidInput("Name an agent or a collection.", hint="--agent sam")
        kind, given = ("agents", agent) if agent is not None else ("collections", collection)
        assert given is not None
        try:
            return f"{kind}/{UUID(given)}"
        except ValueError:
            found = self._ask(f"{kind}?{urlencode({'name': given})}")["items"]
        if not found:
            raise NotFound(f"There is no {kind[:-1]} named {given!r}.")
        return f"{kind}/{found[0]['id']}"

    def post(
        self, place: str, file: Path, *, tags: Sequence[str] = (), unique: bool = False
    ) -> dict[str, Any]:
        """Send a file; the document that it became.

        Raises:
            InvalidInput: the file can't be read here.
            MemserverError: the server refused it, with the server's code.
        """
        try:
            content = file.read_bytes()
        except OSError as error:
            raise InvalidInput(f"{error.strerror}.") from error
        query = [("name", file.name), ("unique", str(unique).lower()), *(("tags", t) for t in tags)]
        return self._ask(f"{place}/documents?{urlencode(query)}", content)

    def take_in(
        self,
        place: str,
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
        for file in files:
            try:
                documents.append(self.post(place, file, tags=tags, unique=unique))
            except SetupError:
                raise
            except MemserverError as error:
                outcomes.append(Outcome(f"{file}: {error.message} {error.hint}".rstrip(), False))
        self._follow(documents, progress)
        return [*outcomes, *map(_outcome, documents)]

    def _follow(self, documents: list[dict[str, Any]], progress: Progress) -> None:
        """Wait until the documents have ended; their entries are kept up to date."""
        task = progress.add_task("storing passages", total=None)
        while any(each["state"] in UNFINISHED for each in documents):
            time.sleep(LOOK_SECONDS)
            for at, document in enumerate(documents):
                if document["state"] in UNFINISHED:
                    documents[at] = self._ask(f"documents/{quote(document['id'])}")
            totals = [each["chunks_total"] for each in documents if each["state"] != "failed"]
            progress.update(
                task,
                completed=sum(each["chunks_done"] for each in documents),
                total=None if None in totals else sum(totals),
            )

    def export(
        self, agent: str, file: Path, *, history: bool = False, vectors: bool = False
    ) -> None:
        """Write an agent's file; it has its name only when it is whole.

        Raises:
            NotFound: there is no such agent.
            InvalidInput: the file can't be written here.
            SetupError: the server can't be reached, or the connection broke.
        """
        query = urlencode({"history": str(history).lower(), "vectors": str(vectors).lower()})
        request = self._request(f"{self.place(agent, None)}/export?{query}")
        part = file.with_name(f"{file.name}.part")
        try:
            with part.open("wb") as writing, self._answer(request, ANSWER_SECONDS) as answer:
                shutil.copyfileobj(answer, writing)
            part.replace(file)
        except OSError as error:
            raise InvalidInput(f"{file}: {error.strerror}.") from error
        finally:
            part.unlink(missing_ok=True)

    def take_in_agent(
        self, file: Path, *, name: str | None = None, keep_ids: bool = False
    ) -> dict[str, Any]:
        """Make an agent of a file; what the server says of it.

        Raises:
            InvalidInput: the file can't be read here.
            MemserverError: the server refused it, with the server's code.
        """
        query = {"keep_ids": str(keep_ids).lower(), **({"name": name} if name else {})}
        try:
            with file.open("rb") as reading:
                request = self._request(f"agents/import?{urlencode(query)}", reading)
                request.add_header("Content-Length", str(file.stat().st_size))
                with self._answer(request, IMPORT_SECONDS) as answer:
                    made: dict[str, Any] = json.load(answer)
                    return made
        except OSError as error:
            raise InvalidInput(f"{file}: {error.strerror}.") from error

    def _ask(self, path: str, content: bytes | None = None) -> dict[str, Any]:
        with self._answer(self._request(path, content), ANSWER_SECONDS) as response:
            answer: dict[str, Any] = json.load(response)
            return answer

    def _request(self, path: str, content: bytes | IO[bytes] | None = None) -> Request:
        request = Request(f"{self.url.rstrip('/')}/v1/{path}", content)
        request.add_header("Content-Type", "application/octet-stream")
        if self.api_key is not None:
            request.add_header("Authorization", f"Bearer {self.api_key}")
        return request

    @contextmanager
    def _answer(self, request: Request, seconds: float) -> Iterator[IO[bytes]]:
        try:
            with urlopen(request, timeout=seconds) as response:
                yield response
        except HTTPError as error:
            raise _refusal(error) from error
        except HTTPException as error:
            raise SetupError(f"The answer of {self.url} broke off.", hint="Try again.") from error
        except (URLError, OSError, ValueError) as error:
            raise SetupError(
                f"No memserver answers at {self.url}: {getattr(error, 'reason', error)}",
                hint="Start it by `memserver serve`, or name its address: --url http://host:8283",
            ) from error


def _outcome(document: dict[str, Any]) -> Outcome:
    if document["state"] == "done":
        return Outcome(f"{document['name']}: {document['chunks_done']} passages", True)
    error = document["error"] or {"message": document["state"], "hint": ""}
    return Outcome(f"{document['name']}: {error['message']} {error['hint']}".rstrip(), False)


def _refusal(error: HTTPError) -> MemserverError:
    try:
        told = json.load(error)["error"]
        return MemserverError(told["message"], hint=told["hint"])
    except (ValueError, KeyError, TypeError):
        return MemserverError(f"The server answered {error.code}.")
