"""The one reader of evaluation data: JSON Lines and JSON, plain or gzipped, checked whole before anything runs.

Owns how a file is read and how its faults are named: file and line, or file and path into the JSON. The
formats are pydantic models, one module each; what a field means is theirs.
"""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from memserver.errors import BadData

SHOWN = 5
"""So many faults are named at once."""


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("it is empty")
    return text


Text = Annotated[str, AfterValidator(_not_blank)]
"""A string with something in it."""


class Record(BaseModel):
    """What the formats derive from: strict types, and no field that is a misspelt name of an absent one.

    Other fields that are not known are left alone: published files have many.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="allow")

    @model_validator(mode="after")
    def _no_misspelt_field(self) -> Self:
        absent = {
            field.alias or name
            for name, field in type(self).model_fields.items()
            if name not in self.model_fields_set
        }
        for name in self.model_extra or ():
            if close := get_close_matches(name, absent, n=1, cutoff=0.8):
                raise ValueError(f"there is a field {name!r}; is {close[0]!r} meant?")
        return self


R = TypeVar("R", bound=Record)


def read_lines(path: Path, kind: type[R], *, key: Callable[[R], str] | None = None) -> list[R]:
    """All records of a JSON Lines file (.jsonl, .jsonl.gz). Raises BadData: with file and line."""
    records: list[R] = []
    lines: list[int] = []
    faults: list[str] = []
    for number, line in enumerate(_content(path).split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            records.append(kind.model_validate_json(line))
            lines.append(number)
        except ValidationError as error:
            faults += [f"line {number}: {fault}" for fault in _named(error)]
    if key and not faults:
        faults = _twice([key(each) for each in records], [f"line {line}" for line in lines])
    return _whole(path, records, faults)


def read_list(path: Path, kind: type[R], *, key: Callable[[R], str] | None = None) -> list[R]:
    """All records of a JSON file that is one list (.json, .json.gz).

    Raises BadData: with file and path: `[3].qa[12].category`.
    """
    try:
        records = TypeAdapter(list[kind]).validate_json(_content(path))  # type: ignore[valid-type]
    except ValidationError as error:
        return _whole(path, [], _named(error))
    places = [f"[{number}]" for number in range(len(records))]
    faults = _twice([key(each) for each in records], places) if key else []
    return _whole(path, records, faults)


def read_object(path: Path, kind: type[R]) -> R:
    """The record that a JSON file is (.json, .json.gz). Raises BadData: with file and path."""
    try:
        return kind.model_validate_json(_content(path))
    except ValidationError as error:
        return _whole(path, [], _named(error))[0]


def read_either(path: Path, kind: type[R], *, key: Callable[[R], str] | None = None) -> list[R]:
    """A list of records in either form, by the file's first character."""
    form = read_list if _content(path)[:1024].lstrip().startswith(b"[") else read_lines
    return form(path, kind, key=key)


def first_fields(path: Path) -> frozenset[str]:
    """The names of the first record's fields, by which formats are distinguished; none where they can't be read."""
    content = _content(path)
    try:
        first = (
            json.loads(content)[0]
            if content[:1024].lstrip().startswith(b"[")
            else json.loads(content.lstrip().partition(b"\n")[0])
        )
    except (ValueError, LookupError):
        return frozenset()
    return frozenset(first) if isinstance(first, dict) else frozenset()


def bad_place(path: Path, place: str, what: str) -> BadData:
    """The error for a fault that only shows when records are compared."""
    return BadData(f"{path.name}, {place}: {what}.", hint=_HINT)


_HINT = "memserver_evals/README.md describes the formats. Nothing was run."


def _content(path: Path) -> bytes:
    """The file's bytes, unpacked, valid UTF-8, without a byte order mark."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise BadData(
            f"There is no file {path}.",
            hint="Name the folder with the data by --data or MEMSERVER_DATA.",
        ) from None
    except OSError as error:
        raise BadData(f"{path} can't be read: {error.strerror}.") from error
    if raw.startswith(b"\x1f\x8b"):
        raw = _unpacked(path, raw)
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise bad_place(path, f"line {line}", "it is not UTF-8") from error
    return raw.removeprefix(b"\xef\xbb\xbf")


def _unpacked(path: Path, packed: bytes) -> bytes:
    try:
        return gzip.decompress(packed)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        unpacker = zlib.decompressobj(wbits=31)
        try:
            whole = unpacker.decompress(packed)
        except zlib.error:
            whole = b""
        line = whole.count(b"\n") + 1
        what = f"the gzip file is damaged or cut off ({error})"
        raise bad_place(path, f"about line {line}", what) from error


def _named(error: ValidationError) -> Iterator[str]:
    for fault in error.errors(include_url=False):
        message = fault["msg"].removeprefix("Value error, ")
        if fault["type"] == "json_invalid":
            message = message.replace("Invalid JSON", "it is not JSON, or is cut off")
        place = _path(fault["loc"])
        yield f"{place}: {message}" if place else message


def _path(places: Sequence[int | str]) -> str:
    shown = "".join(f"[{place}]" if isinstance(place, int) else f".{place}" for place in places)
    return shown.removeprefix(".")


def _twice(keys: Sequence[str], places: Sequence[str]) -> list[str]:
    first: dict[str, str] = {}
    faults = []
    for key, place in zip(keys, places, strict=True):
        if key in first:
            faults.append(f"{place}: {json.dumps(key)} is the id of {first[key]} too")
        first.setdefault(key, place)
    return faults


def _whole(path: Path, records: list[R], faults: Iterator[str] | list[str]) -> list[R]:
    faults = list(faults)
    if faults:
        more = f"; and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
        named = "; ".join(faults[:SHOWN])
        raise BadData(f"{path.name}, {named}{more}.", hint=_HINT)
    if not records:
        raise bad_place(path, "line 1", "there are no records in it")
    return records
