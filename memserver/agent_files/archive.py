"""The agent file as a zip archive: written piece by piece, and read record by record from a file on disk."""

import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import IO, Any, TypeVar

from pydantic import BaseModel, ValidationError

from memserver.agent_files.records import (
    END,
    FORMAT,
    LISTS,
    MANIFEST,
    SINCE,
    VERSION,
    AgentRecord,
    End,
    FileRecord,
    Manifest,
    Vectors,
)
from memserver.agent_files.source import Note
from memserver.errors import AgentFileCorrupt, AgentFileNewer, AgentFileTooLarge
from memserver.memory.bounded_json import read_bounded

AGENT = "agent.json"
LONGEST_LINE = 32_000_000
"""Bytes of one record."""
DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    struct.error,
    lzma.LZMAError,
)
_AnyModel = TypeVar("_AnyModel", bound=BaseModel)


class _Pieces:
    """A file that can't be sought in; what was written is fetched piece by piece."""

    def __init__(self) -> None:
        self._written: list[bytes] = []

    def write(self, data: bytes, /) -> int:
        self._written.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """It ends with the last piece."""

    def fetch(self) -> bytes:
        piece = b"".join(self._written)
        self._written.clear()
        return piece


class ArchiveWriter:
    """Writes an agent file; each call gives the bytes that are ready."""

    def __init__(self) -> None:
        self._pieces = _Pieces()
        self._zip = zipfile.ZipFile(self._pieces, "w", zipfile.ZIP_DEFLATED)
        self._member: IO[bytes] | None = None
        self._lines: dict[str, int] = {}
        self._list = ""

    def add(self, name: str, record: BaseModel) -> bytes:
        self._close_member()
        self._zip.writestr(name, record.model_dump_json(indent=1, exclude_none=True))
        return self._pieces.fetch()

    def begin(self, name: str) -> None:
        """Begin a list; those before it are closed."""
        self._close_member()
        self._list, self._lines[name] = name, 0
        self._member = self._zip.open(f"{name}.jsonl", "w", force_zip64=True)

    def write(self, records: Sequence[FileRecord]) -> bytes:
        assert self._member is not None
        self._lines[self._list] += len(records)
        lines = (record.model_dump_json(exclude_defaults=True) + "\n" for record in records)
        self._member.write("".join(lines).encode())
        return self._pieces.fetch()

    def end(self) -> bytes:
        last = self.add(END, End(lines=self._lines))
        self._zip.close()
        return last + self._pieces.fetch()

    def _close_member(self) -> None:
        if self._member is not None:
            self._member.close()
            self._member = None


class ArchiveReader:
    def __init__(self, file: IO[bytes], most_bytes: int) -> None:
        """Open a file, which stays open, if it unpacks to no more than `most_bytes`.

        Raises:
            AgentFileCorrupt: it is damaged, or not whole.
            AgentFileNewer: its format is newer.
            AgentFileTooLarge: it unpacks to more.
        """
        try:
            self._zip = zipfile.ZipFile(file)
        except DAMAGED as error:
            raise AgentFileCorrupt(
                "The file is damaged, or its end is missing.", hint="Export or send it again."
            ) from error
        if sum(each.file_size for each in self._zip.infolist()) > most_bytes:
            raise AgentFileTooLarge(
                f"The file unpacks to more than {most_bytes} bytes.",
                hint="Raise MEMSERVER_IMPORT_MAX_BYTES.",
            )
        self.manifest = self._read_manifest()
        self.agent = self._one(AGENT, AgentRecord)
        self._lines = self._one(END, End).lines
        version = self.manifest.version
        needed = {name for name in LISTS if SINCE.get(name, 1) <= version}
        if not needed <= self._lines.keys() <= LISTS.keys():
            raise AgentFileCorrupt(f"{END}: the lists are not those of version {version}.")

    @property
    def vectors(self) -> Vectors | None:
        """Of which model the passages' vectors are, if they have any."""
        return self.manifest.vectors

    @property
    def notes(self) -> Sequence[Note]:
        return ()

    def records(self, name: str) -> Iterator[Any]:
        """The records of a list, one after another. Raises AgentFileCorrupt: it is damaged, or a record is not as it has to be."""
        if name not in self._lines:  # its version is older than that list
            return
        number = 0
        for number, line in enumerate(self._read_lines(f"{name}.jsonl"), 1):
            yield validate(
                LISTS[name], parse_json(line, f"{name}.jsonl:{number}"), f"{name}.jsonl:{number}"
            )
        if number != self._lines[name]:
            raise AgentFileCorrupt(
                f"{name}.jsonl has {number} lines, but {END} says {self._lines[name]}."
            )

    def _read_manifest(self) -> Manifest:
        manifest = self._json(MANIFEST)
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise AgentFileCorrupt(f"{MANIFEST}: the format is not {FORMAT!r}.")
        version = manifest.get("version")
        if isinstance(version, int) and version > VERSION:
            raise AgentFileNewer(
                f"The file has version {version} of the format; this server knows {VERSION}.",
                hint="Import it with a newer memserver.",
            )
        return validate(Manifest, manifest, MANIFEST)

    def _one(self, name: str, kind: type[_AnyModel]) -> _AnyModel:
        return validate(kind, self._json(name), name)

    def _json(self, name: str) -> object:
        return parse_json(b"".join(self._read_lines(name)), name)

    def _read_lines(self, name: str) -> Iterator[bytes]:
        try:
            with self._zip.open(name) as member:
                while line := member.readline(LONGEST_LINE + 1):
                    if len(line) > LONGEST_LINE:
                        raise AgentFileTooLarge(
                            f"{name} has a line of more than {LONGEST_LINE} bytes."
                        )
                    yield line
        except KeyError as error:
            raise AgentFileCorrupt(f"The file has no {name}.") from error
        except DAMAGED as error:
            raise AgentFileCorrupt(f"{name} is damaged: {error}.") from error


def parse_json(text: bytes, where: str) -> object:
    """JSON, cleaned. Raises AgentFileCorrupt."""
    try:
        return read_bounded(text)
    except (ValueError, RecursionError) as error:
        raise AgentFileCorrupt(f"{where}: no valid JSON: {error}.") from error


def validate(kind: type[_AnyModel], value: object, where: str) -> _AnyModel:
    """The record that a value is. Raises AgentFileCorrupt: it is none; the message names the field."""
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part)[:100] for part in first["loc"][:6])
        raise AgentFileCorrupt(f"{where}: {field}: {first['msg'][:500]}.") from error
