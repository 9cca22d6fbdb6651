"""Parses a file in this process. A server does it through `sandbox`, since files are not to be trusted."""

import importlib
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from memserver.errors import DocumentCorrupt, DocumentEmpty, DocumentTooLarge
from memserver.memory.parsing.base import LONGEST_TEXT, MOST_SECTIONS, Kind, Parsed, SourceFile
from memserver.memory.parsing.sentences import sentences

_PARSERS: dict[Kind, str] = {
    "text": "plain:parse_text",
    "code": "plain:parse_code",
    "markdown": "markup:parse_markdown",
    "html": "markup:parse_html",
    "docx": "markup:parse_docx",
    "pptx": "slides:parse_pptx",
    "odp": "slides:parse_odp",
    "odt": "opendocument:parse_odt",
    "epub": "books:parse_epub",
    "rtf": "books:parse_rtf",
    "email": "mail:parse_email",
    "notebook": "books:parse_notebook",
    "pdf": "pdf:parse_pdf",
    "jsonl": "records:parse_records",
    "json": "records:parse_json",
    "csv": "tables:parse_csv",
    "xlsx": "tables:parse_sheets",
    "xls": "tables:parse_sheets",
    "ods": "tables:parse_sheets",
}
"""Module and function for each kind; only those of a kind that comes are loaded, with their libraries."""


def parse(source: SourceFile) -> Parsed:
    """A file's text with its sections and sentences.

    Raises:
        DocumentError: one of its kinds says why the file can't be read.
    """
    module, _, function = _PARSERS[source.kind].partition(":")
    found = getattr(importlib.import_module(f"memserver.memory.parsing.{module}"), function)
    try:
        parsed = cast("Callable[[SourceFile], Parsed]", found)(source)
    except RecursionError as error:
        raise DocumentCorrupt("The file is nested too deeply.") from error
    if not parsed.text.strip():
        raise DocumentEmpty("There is no text in the file.")
    if len(parsed.text) > LONGEST_TEXT:
        raise DocumentTooLarge(
            f"The file has {len(parsed.text)} characters of text; {LONGEST_TEXT} is the most.",
            hint="Send it in parts.",
        )
    if len(parsed.sections) > MOST_SECTIONS:
        raise DocumentTooLarge(
            f"The file has {len(parsed.sections)} records, rows or headings; {MOST_SECTIONS} is the most.",
            hint="Send it in parts.",
        )
    return (
        parsed if parsed.sentences else replace(parsed, sentences=_units(parsed, source.language))
    )


def _units(parsed: Parsed, language: str) -> list[int]:
    """Where sentences begin, and rows, within which none does."""
    rows = [section.start for section in parsed.sections if section.row is not None]
    if not rows:
        return sentences(parsed.text, language)
    starts = [section.start for section in parsed.sections]

    def is_within_row(at: int) -> bool:
        index = bisect_right(starts, at) - 1
        return index >= 0 and parsed.sections[index].row is not None

    found = (at for at in sentences(parsed.text, language) if not is_within_row(at))
    return sorted({*found, *starts})
