"""Reads task files, JSON Lines or one JSON list, and says of bad data where it stands."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from memserver.errors import InvalidInput

_Record = TypeVar("_Record", bound=BaseModel)


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
