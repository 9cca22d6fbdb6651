"""JSON and JSON Lines: a record is a section or a row of its own."""

import json
from typing import Any

from memserver.errors import DocumentCorrupt
from memserver.memory.parsing.base import Parsed, SourceFile
from memserver.memory.parsing.building import TextBuilder
from memserver.memory.parsing.encoding import decode
from memserver.memory.parsing.plain import parse_text

_TEXT = ("text", "content", "body", "passage")
_TITLE = ("title", "heading")
_MOST_TAGS = 100
_LONG_CELL = 200  # characters
_DEEPEST = 6  # levels whose keys are headings


def parse_records(source: SourceFile) -> Parsed:
    """A record's `text`, `content`, `body` or `passage` under its `title`; of another one, all fields.

    A record's `tags` and `metadata` become those of its passages.

    Raises:
        DocumentCorrupt: a line is no JSON.
    """
    decoded = decode(source.content, source.charset)
    builder = TextBuilder(source.language, [*decoded.warnings])
    for number, line in enumerate(decoded.text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DocumentCorrupt(
                f"Line {number} is no JSON: {error}", hint="Fix the line, and send the file again."
            ) from error
        _add_record(builder, number, value)
    return builder.build()


def parse_json(source: SourceFile) -> Parsed:
    """Objects of an array as rows, or as texts if they hold some; keys above them are headings."""
    decoded = decode(source.content, source.charset)
    try:
        value = json.loads(decoded.text)
    except ValueError as error:
        parsed = parse_text(source)
        warning = f"This is no valid JSON, and read as plain text: {error}."
        return Parsed(parsed.text, warnings=[*parsed.warnings, warning])
    builder = TextBuilder(source.language, [*decoded.warnings])
    _add_value(builder, value, ())
    return builder.build()


def _add_value(builder: TextBuilder, value: Any, keys: tuple[str, ...]) -> None:  # noqa: ANN401
    heading = " > ".join(keys)
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for number, item in enumerate(value, start=1):
            _add_item(builder, item, number, heading)
    elif isinstance(value, dict) and len(keys) < _DEEPEST:
        flat = [f"{key}: {_as_text(field)}" for key, field in value.items() if not _nests(field)]
        builder.add("\n".join(flat), heading=heading)
        for key, field in value.items():
            if _nests(field):
                _add_value(builder, field, (*keys, key))
    elif isinstance(value, list):
        builder.add("\n".join(map(_as_text, value)), heading=heading)
    else:
        builder.add(_as_text(value), heading=heading)


def _add_item(builder: TextBuilder, item: Any, number: int, heading: str) -> None:  # noqa: ANN401
    """An item of an array: a row, or if it holds more than a line, a text."""
    fields = item.items() if isinstance(item, dict) else [("", item)]
    cells = [(key, _as_text(field)) for key, field in fields]
    if not any("\n" in cell or len(cell) > _LONG_CELL for _, cell in cells):
        builder.add_row(cells, heading=heading, record=number)
        return
    title = _first(item, _TITLE) if isinstance(item, dict) else ""
    heading = " > ".join(filter(None, (heading, title)))
    shown = "\n".join(f"{key}: {cell}" if key else cell for key, cell in cells)
    builder.add(shown, heading=heading, record=number)


def _nests(value: Any) -> bool:  # noqa: ANN401 - any JSON
    return (isinstance(value, dict) and bool(value)) or (
        isinstance(value, list) and any(isinstance(item, dict | list) for item in value)
    )


def _add_record(builder: TextBuilder, number: int, value: Any) -> None:  # noqa: ANN401
    if not isinstance(value, dict):
        builder.add(_as_text(value), record=number)
        return
    tags, metadata = value.get("tags"), value.get("metadata")
    builder.add(
        _show(value),
        record=number,
        heading=_first(value, _TITLE),
        tags=[tag for tag in tags if isinstance(tag, str)][:_MOST_TAGS]
        if isinstance(tags, list)
        else (),
        metadata=metadata if isinstance(metadata, dict) else {},
    )


def _show(value: dict[str, Any]) -> str:
    text = _first(value, _TEXT)
    if text:
        return "\n".join(filter(None, [_first(value, _TITLE), text]))
    return "\n".join(f"{key}: {_as_text(field)}" for key, field in value.items())


def _as_text(value: Any) -> str:  # noqa: ANN401 - any JSON
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _first(value: dict[str, Any], names: tuple[str, ...]) -> str:
    return next((value[name] for name in names if isinstance(value.get(name), str)), "")
