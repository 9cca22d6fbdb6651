"""Reads task files, JSON Lines or one JSON list, and says of bad data where it stands."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from memserver.errors import InvalidInput

Text = Annotated[str, StringConstraints(strict=True, min_length=1)]
_Record = TypeVar("_Record", bound=BaseModel)


class Published(BaseModel):
    """A line of a published file; what else stands in it is not used."""

    model_config = ConfigDict(extra="ignore")

    id: Text | None = None
    problem_description: Text
    ground_truth: Text


_Named = TypeVar("_Named", bound=Published)


def read_records(path: Path, kind: type[_Record]) -> list[_Record]:
    """All records of a file.

    Raises InvalidInput: with file and line (in a JSON list: the place in it), before anything is used.
    """
    records = []
    for place, value in _values(path):
        try:
            records.append(kind.model_validate(value))
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"])) or "the record"
            raise InvalidInput(f"{place}: {field}: {first['msg']}") from error
    if not records:
        raise InvalidInput(f"{path}: there is nothing in it.")
    return records


def read_named(path: Path, kind: type[_Named], prefix: str) -> dict[str, _Named]:
    """The published tasks of a file by their ids; those without one are numbered. Raises InvalidInput."""
    found: dict[str, _Named] = {}
    for number, record in enumerate(read_records(path, kind)):
        name = record.id or f"{prefix}_{number:05d}"
        if name in found:
            raise InvalidInput(f"{path}: the id {name} stands there twice (record {number + 1}).")
        found[name] = record
    return found


def hash_of(examples: tuple[object, ...]) -> str:
    return hashlib.sha256(repr(examples).encode("utf-8", "replace")).hexdigest()[:16]


def _values(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"{path}: can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: is not UTF-8 text.") from error
    if text.lstrip().startswith("["):
        whole = _parsed(text, str(path))
        yield from ((f"{path}: item {number}", value) for number, value in enumerate(whole, 1))
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield f"{path}:{number}", _parsed(line, f"{path}:{number}")


def _parsed(text: str, place: str) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"{place}: is no JSON: {error}") from error
    except RecursionError as error:
        raise InvalidInput(f"{place}: is nested too deeply.") from error
