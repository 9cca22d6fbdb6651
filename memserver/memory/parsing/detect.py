"""What kind of file some bytes are, by what they hold; name and declared type only decide between kinds of text."""

import codecs
import json
import re
from pathlib import PurePath

from charset_normalizer import from_bytes

from memserver.errors import (
    DocumentCorrupt,
    DocumentEmpty,
    DocumentEncrypted,
    UnsupportedDocument,
)
from memserver.memory.parsing.base import Kind

KINDS = "text, Markdown, HTML, PDF, DOCX or JSON Lines"

_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_BINARY = {
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"GIF8": "a GIF image",
    b"\x1f\x8b": "a gzip archive",
    b"Rar!": "a RAR archive",
    b"7z\xbc\xaf": "a 7z archive",
    b"{\\rtf": "an RTF file",
    b"%!PS": "a PostScript file",
}
_ZIPPED = {
    b"xl/workbook.xml": "an Excel workbook",
    b"ppt/presentation.xml": "a PowerPoint presentation",
    b"META-INF/container.xml": "an EPUB book",
    b"content.xml": "an OpenDocument file",
}
_CLAIMS: dict[Kind, str] = {
    "text": ".txt .text",
    "markdown": ".md .markdown text/markdown",
    "html": ".html .htm .xhtml text/html application/xhtml+xml",
    "pdf": ".pdf application/pdf",
    "docx": ".docx application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "jsonl": ".jsonl .ndjson application/jsonl application/x-ndjson application/jsonlines "
    "application/x-jsonlines",
}
"""Ends of names, and types, that say a kind."""
_KIND_BY_CLAIM = {claim: kind for kind, claims in _CLAIMS.items() for claim in claims.split()}
_HTML = re.compile(r"<(!doctype\s+html|html|head|body)\b", re.IGNORECASE)
_COMMENT = re.compile(r"\s*(<!--|<\?xml)")
_HEADING = re.compile(r"^#{1,6} \S", re.M)
_LOOKED_AT = 100_000


def detect(content: bytes, name: str = "", content_type: str = "") -> Kind:
    """The kind of a file.

    Raises:
        DocumentEmpty: there is nothing in it.
        UnsupportedDocument: it is a kind that is not read here.
        DocumentEncrypted: it needs a password.
        DocumentCorrupt: it isn't what its name says.
    """
    if not content.strip(b"\x00\t\n\r\x0c "):
        raise DocumentEmpty("The file is empty.")
    claimed = _claim(name, content_type)
    if b"%PDF-" in content[:1024]:
        return "pdf"
    if content.startswith(b"PK\x03\x04"):
        return _detect_zip(content)
    if content.startswith(_OLE):
        raise _old_office(content)
    for magic, what in _BINARY.items():
        if content.startswith(magic):
            raise UnsupportedDocument(f"This is {what}.", hint=f"Send {KINDS}.")
    if claimed in {"pdf", "docx"}:
        raise DocumentCorrupt(
            f"This is no {claimed.upper()} file, though its name or type says so.",
            hint="Send the file again, or under the name and type of what it is.",
        )
    return _text_kind(decode(content), claimed)


def decode(content: bytes) -> str:
    """The text of a file: by its byte order mark, as UTF-8, or in the encoding that it looks like.

    Raises:
        UnsupportedDocument: it is no text.
    """
    for mark, encoding in (
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF32_LE, "utf-32"),
        (codecs.BOM_UTF32_BE, "utf-32"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if content.startswith(mark):
            return content.decode(encoding, "replace")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        best = from_bytes(content[:_LOOKED_AT]).best()
        if best is None:
            raise _no_text() from None
        text = content.decode(best.encoding, "replace")
    if text[:_LOOKED_AT].count("\0") > len(text[:_LOOKED_AT]) // 1000:
        raise _no_text()
    return text


def _claim(name: str, content_type: str) -> Kind | None:
    by_name = _KIND_BY_CLAIM.get(PurePath(name).suffix.lower())
    return by_name or _KIND_BY_CLAIM.get(content_type.partition(";")[0].strip().lower())


def _detect_zip(content: bytes) -> Kind:
    """By the names in the archive, which stand in it as they are; opening it is for a process of its own."""
    if b"word/document.xml" in content:
        return "docx"
    what = next((what for file, what in _ZIPPED.items() if file in content), "a ZIP archive")
    raise UnsupportedDocument(f"This is {what}.", hint=f"Send {KINDS}.")


def _old_office(content: bytes) -> UnsupportedDocument | DocumentEncrypted:
    if "EncryptedPackage".encode("utf-16-le") in content:
        return DocumentEncrypted(
            "The file is protected by a password.", hint="Save it without one, and send it again."
        )
    return UnsupportedDocument(
        "This is a file of an Office before 2007.", hint="Save it as .docx, and send it again."
    )


def _text_kind(text: str, claimed: Kind | None) -> Kind:
    if _is_html(text[:_LOOKED_AT]):
        return "html"
    if claimed is not None:
        return claimed
    if _looks_like_records(text):
        return "jsonl"
    return "markdown" if _HEADING.search(text[:_LOOKED_AT]) else "text"


def _is_html(text: str) -> bool:
    """Whether a page begins here, after comments."""
    at = 0
    while opened := _COMMENT.match(text, at):
        end = text.find(">" if opened[1] == "<?xml" else "-->", opened.end())
        if end < 0:
            return False
        at = text.index(">", end) + 1
    return _HTML.match(text, at + len(text[at:]) - len(text[at:].lstrip())) is not None


def _looks_like_records(text: str) -> bool:
    lines = [line for line in text[:_LOOKED_AT].split("\n") if line.strip()]
    if len(text) > _LOOKED_AT and len(lines) > 1:
        lines.pop()  # it may be cut
    return bool(lines) and all(_is_object(line) for line in lines[:20])


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _no_text() -> UnsupportedDocument:
    return UnsupportedDocument("This is a binary file.", hint=f"Send {KINDS}.")
