"""Parses a file in this process. A server does it through `sandbox`, since files are not to be trusted."""

from dataclasses import replace

from memserver.errors import DocumentCorrupt, DocumentEmpty, DocumentTooLarge
from memserver.memory.parsing.base import (
    LONGEST_TEXT,
    MOST_SECTIONS,
    Kind,
    Parsed,
    plain,
)
from memserver.memory.parsing.detect import decode
from memserver.memory.parsing.markup import docx_to_markdown, html_to_markdown, markdown_sections
from memserver.memory.parsing.pdf import parse_pdf
from memserver.memory.parsing.records import parse_records
from memserver.memory.parsing.sentences import sentences


def parse(content: bytes, kind: Kind, language: str = "en") -> Parsed:
    """A file's text with its sections and sentences.

    Args:
        content: the file.
        kind: as `detect` found it.
        language: whose abbreviations don't end a sentence, as an ISO 639-1 code.

    Raises:
        DocumentError: one of its kinds says why the file can't be read.
    """
    try:
        parsed = _parse(content, kind)
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
            f"The file has {len(parsed.sections)} records or headings; {MOST_SECTIONS} is the most.",
            hint="Send it in parts.",
        )
    return replace(parsed, sentences=sentences(parsed.text, language))


def _parse(content: bytes, kind: Kind) -> Parsed:
    if kind == "pdf":
        return parse_pdf(content)
    if kind == "jsonl":
        return parse_records(decode(content))
    if kind == "docx":
        text = docx_to_markdown(content)
    elif kind == "html":
        text = html_to_markdown(content)
    else:
        text = decode(content)
    text = plain(text)
    return Parsed(text, [] if kind == "text" else markdown_sections(text))
