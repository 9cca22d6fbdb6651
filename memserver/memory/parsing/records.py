"""JSON Lines: each record is a section of its own."""

import json
from typing import Any

from memserver.errors import DocumentCorrupt
from memserver.memory.parsing.base import Parsed, Source, TextSection, plain
from memserver.memory.parsing.encoding import decode

_TEXT = ("text", "content", "body", "passage")
_TITLE = ("title", "heading")
_MOST_TAGS = 100


def parse_records(source: Source) -> Parsed:
    """A record's `text`, `content`, `body` or `passage` under its `title`; of another one, all fields.

    A record's `tags` and `metadata` become those of its passages.

    Raises:
        DocumentCorrupt: a line is no JSON.
    """
    decoded = decode(source.content, source.charset)
    parts, sections, at = [], [], 0
    for number, line in enumerate(decoded.text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DocumentCorrupt(
                f"Line {number} is no JSON: {error}", hint="Fix the line, and send the file again."
            ) from error
        shown = plain(_shown(value))
        if not shown.strip():
            continue
        sections.append(_section(at, number, value))
        parts.append(shown)
        at += len(shown) + 2
    return Parsed("\n\n".join(parts), sections, warnings=decoded.warnings)


def _section(at: int, number: int, value: Any) -> TextSection:  # noqa: ANN401 - any JSON
    if not isinstance(value, dict):
        return TextSection(at, record=number)
    tags, metadata = value.get("tags"), value.get("metadata")
    return TextSection(
        at,
        record=number,
        heading=_first(value, _TITLE),
        tags=[tag for tag in tags if isinstance(tag, str)][:_MOST_TAGS]
        if isinstance(tags, list)
        else (),
        metadata=metadata if isinstance(metadata, dict) else {},
    )


def _shown(value: Any) -> str:  # noqa: ANN401 - any JSON
    if isinstance(value, str):
        return value
    if not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    text = _first(value, _TEXT)
    if text:
        return "\n".join(filter(None, [_first(value, _TITLE), text]))
    return "\n".join(
        f"{key}: {field if isinstance(field, str) else json.dumps(field, ensure_ascii=False)}"
        for key, field in value.items()
    )


def _first(value: dict[str, Any], names: tuple[str, ...]) -> str:
    return next((value[name] for name in names if isinstance(value.get(name), str)), "")
