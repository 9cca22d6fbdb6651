"""What kind of file some bytes are: by signature, by what a container holds, and among kinds of text by name and type.

Owns the order of these. Leaves containers to `containers`, encodings to `encoding`.
"""

import csv
import json
import re
from importlib.util import find_spec
from pathlib import PurePath

from pygments.lexers import find_lexer_class_for_filename
from pygments.lexers.special import TextLexer

from memserver.errors import DocumentCorrupt, DocumentEmpty, UnsupportedDocument
from memserver.memory.parsing.base import KINDS, Kind
from memserver.memory.parsing.containers import OLE, ZIP, detect_ole, detect_zip
from memserver.memory.parsing.encoding import declared_charset, decode

_UNPACK = "Unpack it, and send the files that are in it."
_SEND = f"Send {KINDS}."
_BINARY = {
    b"\x89PNG\r\n": ("a PNG image", _SEND),
    b"\xff\xd8\xff": ("a JPEG image", _SEND),
    b"GIF87a": ("a GIF image", _SEND),
    b"GIF89a": ("a GIF image", _SEND),
    b"II*\0": ("a TIFF image", _SEND),
    b"MM\0*": ("a TIFF image", _SEND),
    b"RIFF": ("an image, a sound or a film", _SEND),
    b"ID3": ("a sound", _SEND),
    b"OggS": ("a sound", _SEND),
    b"\x1aE\xdf\xa3": ("a film", _SEND),
    b"SQLite format 3\0": ("an SQLite database", "Export its tables as CSV."),
    b"PAR1": ("a Parquet table", "Export it as CSV."),
    b"\x1f\x8b": ("a gzip archive", _UNPACK),
    b"BZh": ("a bzip2 archive", _UNPACK),
    b"\xfd7zXZ\0": ("an xz archive", _UNPACK),
    b"\x28\xb5\x2f\xfd": ("a Zstandard archive", _UNPACK),
    b"Rar!\x1a\x07": ("a RAR archive", _UNPACK),
    b"7z\xbc\xaf": ("a 7z archive", _UNPACK),
    b"\x78\x9f\x3e\x22": (
        "Outlook's winmail.dat",
        "Send the files that are in it, or the mail as it was saved by Outlook.",
    ),
    b"\x7fELF": ("a program", _SEND),
    b"%!PS-Adobe": ("a PostScript file", "Convert it to PDF."),
}
_TEXTUAL = {b"%!PS-Adobe"}
"""All others are looked for in what isn't text: a word may begin like a signature."""
_CLAIMS: dict[Kind, str] = {
    "text": ".txt .text .log .rst .adoc .org .tex .srt .vtt",
    "markdown": ".md .markdown .mdx .mkd .rmd .qmd text/markdown",
    "html": ".html .htm .xhtml text/html application/xhtml+xml",
    "pdf": ".pdf application/pdf",
    "docx": ".docx .docm application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xlsx": ".xlsx .xlsm .xlsb application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "xls": ".xls application/vnd.ms-excel",
    "pptx": ".pptx .pptm application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "odt": ".odt application/vnd.oasis.opendocument.text",
    "ods": ".ods application/vnd.oasis.opendocument.spreadsheet",
    "odp": ".odp application/vnd.oasis.opendocument.presentation",
    "epub": ".epub application/epub+zip",
    "rtf": ".rtf application/rtf text/rtf",
    "email": ".eml .mbox message/rfc822 application/mbox",
    "csv": ".csv .tsv .tab text/csv text/tab-separated-values",
    "json": ".json application/json",
    "notebook": ".ipynb application/x-ipynb+json",
    "jsonl": ".jsonl .ndjson application/jsonl application/x-ndjson application/jsonlines "
    "application/x-jsonlines",
}
"""Ends of names, and types, that say a kind."""
_KIND_BY_CLAIM = {claim: kind for kind, claims in _CLAIMS.items() for claim in claims.split()}
_NO_TEXT: set[Kind] = {"pdf", "docx", "xlsx", "pptx", "odt", "ods", "odp", "epub", "rtf"}
_EXTRA: dict[Kind, str] = {"pptx": "pptx", "odp": "odfdo", "odt": "odfdo"}
"""The modules that read them, which are in the extra `files`."""
_HTML = re.compile(r"<(!doctype\s+html|html|head|body)\b", re.IGNORECASE)
_COMMENT = re.compile(r"\s*(<!--|<\?xml)")
_MARKDOWN = (
    re.compile(r"(?:\A|\n\n)#{1,6} [^\n]+\n\n"),
    re.compile(r"\n(?:```|~~~)\w*\n"),
    re.compile(r"\[[^]\n]{1,200}\]\([^)\s]{1,500}\)"),
    re.compile(r"\n\n(?:[-*] [^\n]+\n){2}"),
)
_HEADERS = re.compile(
    r"(?:From [^\n]{3,200}\n)?(?:(?:From|To|Subject|Date|Received|Return-Path|MIME-Version"
    r"|Message-ID|Delivered-To|DKIM-Signature|X-[\w-]+|Content-Type|Reply-To|Cc):"
    r"[^\n]*\n(?:[ \t][^\n]*\n)*){3}",
    re.IGNORECASE,
)
_LOOKED_AT = 100_000
_ROWS = 20  # lines that are looked at for records or a table


def detect(content: bytes, name: str = "", content_type: str = "") -> Kind:
    """The kind of a file.

    Raises:
        DocumentEmpty: there is nothing in it.
        UnsupportedDocument: it is a kind that is not read here.
        DocumentEncrypted: it needs a password.
        DocumentCorrupt: it isn't what its name says.
        DocumentTooCostly: a container unpacks to more than is read.
    """
    if not content.strip(b"\x00\t\n\r\x0c "):
        raise DocumentEmpty("The file is empty.")
    claimed = _claim(name, content_type)
    kind = _by_signature(content, claimed) or _text_kind(content, claimed, content_type)
    if kind in _EXTRA and find_spec(_EXTRA[kind]) is None:
        raise UnsupportedDocument(
            f"This server doesn't read {kind.upper()} files.",
            hint="Its operator can install memserver's extra `files`. Or save it as PDF.",
        )
    return kind


def _by_signature(content: bytes, claimed: Kind | None) -> Kind | None:
    if _is_pdf(content, claimed):
        return "pdf"
    if content.startswith(ZIP):
        return detect_zip(content)
    if content.startswith(OLE):
        return detect_ole(content)
    if content.startswith(b"{\\rtf"):
        return "rtf"
    binary = b"\0" in content[:_LOOKED_AT] or not content[:4].isascii()
    for magic, (what, hint) in _BINARY.items():
        if content.startswith(magic) and (binary or magic in _TEXTUAL):
            raise UnsupportedDocument(f"This is {what}.", hint=hint)
    if content[4:8] == b"ftyp" and binary:
        raise UnsupportedDocument("This is a film, a sound or an image.", hint=_SEND)
    return None


def _is_pdf(content: bytes, claimed: Kind | None) -> bool:
    at = content.find(b"%PDF-", 0, 1024)
    if at < 0:
        return False
    # A text can speak of the signature; a PDF has objects, and may have rubbish before it.
    return claimed == "pdf" or (
        b" obj" in content and (b"startxref" in content[-2048:] or not content[:at].strip())
    )


def _claim(name: str, content_type: str) -> Kind | None:
    suffix = PurePath(name).suffix.lower()
    if by_name := _KIND_BY_CLAIM.get(suffix):
        return by_name
    lexer = find_lexer_class_for_filename(PurePath(name).name[:255]) if name else None
    if lexer is not None and not issubclass(lexer, TextLexer):
        return "code"
    return _KIND_BY_CLAIM.get(content_type.partition(";")[0].strip().lower())


def _text_kind(content: bytes, claimed: Kind | None, content_type: str) -> Kind:
    if claimed == "email":  # whose parts may have encodings of their own
        return "email"
    if claimed in _NO_TEXT:
        raise DocumentCorrupt(
            f"This is no {claimed.upper()} file, though its name or type says so.",
            hint="Send the file again, or under the name and type of what it is.",
        )
    text = decode(content, declared_charset(content_type)).text
    if claimed == "code":
        return "code"
    if _is_html(text[:_LOOKED_AT]):
        return "html"
    if claimed in {"json", "notebook", None} and (found := _json_kind(text, claimed)):
        return found
    if claimed == "xls":  # many programs name a text with tabs so
        return "csv"
    return claimed or _unclaimed(text)


def _unclaimed(text: str) -> Kind:
    head = text[:_LOOKED_AT].replace("\r\n", "\n")
    if _HEADERS.match(head):
        return "email"
    if head.startswith("#!"):
        return "code"
    if _is_table(head):
        return "csv"
    is_title = head.startswith("# ") and "\n\n" in head
    return "markdown" if is_title or sum(bool(m.search(head)) for m in _MARKDOWN) > 1 else "text"


def _json_kind(text: str, claimed: Kind | None) -> Kind | None:
    lines = [line for line in text[: 10 * _LOOKED_AT].split("\n") if line.strip()]
    if len(text) > 10 * _LOOKED_AT and len(lines) > 1:
        lines.pop()  # it may be cut
    objects = bool(lines) and all(_is_object(line) for line in lines[:_ROWS])
    if objects and (len(lines) > 1 or claimed is None):
        return "jsonl"
    if claimed is None and not re.match(r'\s*(\{\s*"|\[\s*\{\s*")', text):
        return None
    return "notebook" if '"nbformat"' in text and '"cells"' in text else "json"


def _is_table(text: str) -> bool:
    """Whether all of the first lines have as many cells, two or more, as prose hardly has."""
    lines = [line for line in text.split("\n")[: _ROWS + 1] if line.strip()][:_ROWS]
    for delimiter in "\t;,":
        try:
            widths = {len(row) for row in csv.reader(lines, delimiter=delimiter, strict=True)}
        except csv.Error:
            continue
        spaced = delimiter == "," and text.count(", ") > text.count(",") / 2
        if len(lines) > 2 and len(widths) == 1 and widths.pop() > 1 and not spaced:
            return True
    return False


def _is_html(text: str) -> bool:
    """Whether a page begins here, after comments."""
    at = 0
    while opened := _COMMENT.match(text, at):
        end = text.find(">" if opened[1] == "<?xml" else "-->", opened.end())
        if end < 0:
            return False
        at = text.index(">", end) + 1
    return _HTML.match(text, at + len(text[at:]) - len(text[at:].lstrip())) is not None


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
