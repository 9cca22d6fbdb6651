"""EPUB, RTF and notebooks: texts with headings."""

import io
import json
import posixpath
import re
import zipfile
import zlib
from itertools import groupby
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

from striprtf.striprtf import rtf_to_text

from memserver.errors import DocumentCorrupt, DocumentEncrypted
from memserver.memory.parsing.base import Parsed, SourceFile, plain
from memserver.memory.parsing.building import TextBuilder
from memserver.memory.parsing.encoding import decode
from memserver.memory.parsing.markup import html_to_markdown, markdown_sections, markdown_table

_NCX = "application/x-dtbncx+xml"
_LONGEST_CHAPTER = 20_000_000  # bytes
_OUTLINE = re.compile(r"\\outlinelevel(\d)(?=[\\ ])(?![^{}]*;})")
_NOTE = re.compile(
    r"(?:\\\*)?\\footnote(?![a-z])"
)  # which would be left out with what stands in it
_HASHES = re.compile(r"^(#+)\s+", re.MULTILINE)
_CODEPAGE = re.compile(rb"\\ansicpg(\d{3,5})")


def parse_epub(source: SourceFile) -> Parsed:
    """The chapters in their order; what it says of itself becomes metadata."""
    builder = TextBuilder(source.language)
    try:
        with zipfile.ZipFile(io.BytesIO(source.content)) as book:
            _read_book(book, builder)
    except (ElementTree.ParseError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise DocumentCorrupt(f"The EPUB is damaged: {error}.") from error
    return builder.build()


def _read_book(book: zipfile.ZipFile, builder: TextBuilder) -> None:
    root = _xml(book, "META-INF/container.xml").find(".//{*}rootfile")
    package = "" if root is None else root.get("full-path", "")
    tree = _xml(book, package)
    builder.metadata |= {
        name: found.text.strip()
        for name, tag in (("title", "title"), ("author", "creator"), ("date", "date"))
        if (found := tree.find(f".//{{*}}metadata/{{*}}{tag}")) is not None and found.text
    }
    folder = posixpath.dirname(package)
    files = {item.get("id"): item.get("href", "") for item in tree.iterfind(".//{*}item")}
    titles = _contents(book, tree, folder)
    locked = _locked(book)
    for reference in tree.iterfind(".//{*}itemref"):
        href = unquote(files.get(reference.get("idref"), ""))
        path = _path(folder, href)
        if path in locked:
            raise DocumentEncrypted(
                "The book is protected against copying (DRM).", hint="Send one without it."
            )
        if path not in book.namelist():
            builder.warnings.append(f"The chapter {href[:200]} is missing in the file.")
            continue
        chapter = decode(_start(book, path))
        text = plain(html_to_markdown(chapter.text))
        sections = markdown_sections(text)
        heading = "" if any(section.heading for section in sections) else titles.get(path, "")
        builder.add_document(Parsed(text, sections, warnings=chapter.warnings), heading)


def _contents(book: zipfile.ZipFile, tree: ElementTree.Element, folder: str) -> dict[str, str]:
    """The title of each chapter's file in the table of contents, of EPUB 3 or 2."""
    titles: dict[str, str] = {}
    for item in tree.iterfind(".//{*}item"):
        path = _path(folder, unquote(item.get("href", "")))
        is_nav = "nav" in item.get("properties", "").split()
        if path not in book.namelist() or not (is_nav or item.get("media-type") == _NCX):
            continue
        try:
            contents = _xml(book, path)
        except ElementTree.ParseError:  # the chapters can be read without it
            continue
        links = [(each.get("href", ""), each) for each in contents.iterfind(".//{*}nav//{*}a")]
        for point in contents.iterfind(".//{*}navPoint"):
            target, label = point.find("{*}content"), point.find("{*}navLabel")
            if target is not None and label is not None:
                links.append((target.get("src", ""), label))
        for href, label in links:
            target_path = _path(posixpath.dirname(path), unquote(href.partition("#")[0]))
            titles.setdefault(target_path, " ".join("".join(label.itertext()).split())[:200])
    return titles


def _path(folder: str, href: str) -> str:
    return posixpath.normpath(posixpath.join(folder, href))


def _locked(book: zipfile.ZipFile) -> set[str]:
    if (name := "META-INF/encryption.xml") not in book.namelist():
        return set()
    references = _xml(book, name).iterfind(".//{*}CipherReference")
    return {unquote(each.get("URI", "")) for each in references}


def _xml(book: zipfile.ZipFile, name: str) -> ElementTree.Element:
    return ElementTree.fromstring(_start(book, name))


def _start(book: zipfile.ZipFile, name: str) -> bytes:
    with book.open(name) as file:
        return file.read(_LONGEST_CHAPTER)


def parse_rtf(source: SourceFile) -> Parsed:
    """Paragraphs, headings and tables."""
    page = _CODEPAGE.search(source.content[:1000])
    raw = decode(source.content, f"cp{page[1].decode()}" if page else "cp1252").text
    marked = _OUTLINE.sub(lambda level: f"{level[0]} {'#' * (int(level[1]) + 1)} ", raw)
    try:
        shown: str = rtf_to_text(_NOTE.sub(" ", marked), errors="replace")  # type: ignore[no-untyped-call]
    except (ValueError, IndexError, LookupError) as error:
        raise DocumentCorrupt(f"The RTF file is damaged: {error}.") from error
    text = _HASHES.sub(r"\1 ", plain(shown))
    text = re.sub(r"\n+\|", "|", text)  # a cell may end with a paragraph
    parts = []
    for width, lines in groupby(text.split("\n"), key=_cells):
        if width:
            parts.append(markdown_table([line.split("|")[:-1] for line in lines]))
        else:
            parts += [line for line in lines if line.strip()]
    text = "\n\n".join(parts)
    lost = text.count("\ufffd")
    warnings = [f"{lost} characters can't be read and stand as U+FFFD."] if lost else []
    return Parsed(text, markdown_sections(text), warnings=warnings)


def _cells(line: str) -> int:
    """How many cells the line has, if it is a row of a table as `rtf_to_text` writes it."""
    return line.count("|") if line.rstrip().endswith("|") else 0


_PICTURES = {"png", "jpeg", "svg"}
"""Keys of a notebook's output of version 3."""


def parse_notebook(source: SourceFile) -> Parsed:
    """The texts of a notebook, its code and what came of it; no pictures."""
    try:
        value = json.loads(decode(source.content, source.charset).text)
        sheets = value.get("worksheets") or [value]  # of version 3
        cells = [cell for sheet in sheets for cell in sheet["cells"]]
        parts = [_cell(cell) for cell in cells]
        pictures = sum(map(_pictures, cells))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DocumentCorrupt(f"The notebook is damaged: {error}.") from error
    text = plain("\n\n".join(filter(None, parts)))
    warnings = [f"Pictures that the code drew were left out: {pictures}."] if pictures else []
    return Parsed(text, markdown_sections(text), warnings=warnings)


def _cell(cell: dict[str, Any]) -> str:
    text = _joined(cell.get("source", cell.get("input", "")))
    if cell.get("cell_type") == "heading":
        return f"{'#' * int(str(cell.get('level', 1)))} {text}"
    if cell.get("cell_type") != "code":
        return text
    parts = [text, *map(_output, _outputs(cell))]
    return "\n\n".join(f"```\n{part}\n```" for part in parts if part.strip())


def _outputs(cell: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in cell.get("outputs") or [] if isinstance(each, dict)]


def _output(output: dict[str, Any]) -> str:
    """What code printed, returned or failed with, as text."""
    if output.get("output_type") in {"error", "pyerr"}:
        return f"{output.get('ename')}: {output.get('evalue')}"
    return _joined(output.get("text") or output.get("data", {}).get("text/plain", ""))


def _pictures(cell: dict[str, Any]) -> int:
    shown = [each.get("data") or each for each in _outputs(cell)]  # the latter in version 3
    return sum(
        any(str(kind).startswith("image/") or kind in _PICTURES for kind in each) for each in shown
    )


def _joined(lines: object) -> str:
    return "".join(map(str, lines)) if isinstance(lines, list) else str(lines)
