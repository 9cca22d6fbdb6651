"""Parses a file in this process. A server does it through `sandbox`, since files are not to be trusted."""

import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from memserver.errors import DocumentCorrupt, DocumentEmpty, DocumentTooLarge
from memserver.memory.parsing.base import LONGEST_TEXT, MOST_SECTIONS, Kind, Parsed, Source
from memserver.memory.parsing.sentences import sentences

_PARSERS: dict[Kind, str] = {
    "text": "plain:parse_text",
    "code": "plain:parse_code",
    "markdown": "markup:parse_markdown",
    "html": "markup:parse_html",
    "docx": "markup:parse_docx",
    "pdf": "pdf:parse_pdf",
    "jsonl": "records:parse_records",
}
"""Module and function for each kind; only those of a kind that comes are loaded, with their libraries."""


def parse(source: Source) -> Parsed:
    """A file's text with its sections and sentences.

    Raises:
        DocumentError: one of its kinds says why the file can't be read.
    """
    module, _, function = _PARSERS[source.kind].partition(":")
    found = getattr(importlib.import_module(f"memserver.memory.parsing.{module}"), function)
    try:
        parsed = cast("Callable[[Source], Parsed]", found)(source)
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
    if parsed.sentences:
        return parsed
    return replace(parsed, sentences=sentences(parsed.text, source.language))
