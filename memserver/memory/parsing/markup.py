"""Markdown, HTML and DOCX. All become Markdown, whose headings are then the sections."""

import io
import re
import zlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from xml.parsers.expat import ExpatError
from zipfile import BadZipFile

import mammoth
from bs4 import BeautifulSoup
from bs4.element import ProcessingInstruction
from markdown_it import MarkdownIt
from markdownify import MarkdownConverter

from memserver.errors import DocumentCorrupt
from memserver.memory.parsing.base import Parsed, SourceFile, TextSection, plain
from memserver.memory.parsing.encoding import decode
from memserver.memory.parsing.front_matter import split_front_matter
from memserver.memory.parsing.html_tables import level_tables
from memserver.memory.parsing.web_page import page_metadata, remove_boilerplate

_NOT_TEXT = (
    *("script", "style", "template", "noscript", "svg", "nav", "head", "iframe", "select"),
    "button",
)
_MARKDOWN = MarkdownIt("commonmark").enable("table")
_FORMULAS = "Formulas were left out."
_BLANK_LINES = re.compile(r"\n[ \t]*\n\s*\n")


def parse_markdown(source: SourceFile) -> Parsed:
    """All of it, as it is written, but for front matter, which becomes metadata and tags; its title is a heading."""
    decoded = decode(source.content, source.charset)
    text, about, problems = split_front_matter(plain(decoded.text))
    title = str(about.metadata.get("title") or "")
    first = next((line for line in text.split("\n") if line.strip()), "")
    if title and first.lstrip("# ") != title:
        text = f"# {title}\n\n{text}"
    return replace(
        about, text=text, sections=markdown_sections(text), warnings=[*decoded.warnings, *problems]
    )


def parse_html(source: SourceFile) -> Parsed:
    """What a page shows a reader, without menus, banners and the like; what it says of itself."""
    decoded = decode(source.content, source.charset)
    soup = BeautifulSoup(decoded.text, "html.parser")
    metadata = page_metadata(soup)
    remove_boilerplate(soup)
    text = plain(_soup_to_markdown(soup, metadata.get("title", "")))
    return Parsed(text, markdown_sections(text), warnings=decoded.warnings, metadata=metadata)


def parse_docx(source: SourceFile) -> Parsed:
    """A Word document's text with its headings, lists, tables, notes and comments; images are left out."""
    try:
        made = mammoth.convert_to_html(
            io.BytesIO(source.content),
            convert_image=lambda _: [],
            style_map="comment-reference => sup",
        )
    except (BadZipFile, KeyError, ExpatError, zlib.error) as error:
        raise DocumentCorrupt(f"The DOCX file is damaged: {error}.") from error
    text = plain(html_to_markdown(made.value))
    has_formulas = any("}oMath" in message.message for message in made.messages)
    warnings = [_FORMULAS] if has_formulas else []
    return Parsed(text, markdown_sections(text), warnings=warnings)


def html_to_markdown(content: str) -> str:
    return _soup_to_markdown(BeautifulSoup(content, "html.parser"), "")


def _soup_to_markdown(soup: BeautifulSoup, title: str) -> str:
    """The text that a page shows, as Markdown; its title first, unless a heading says the same."""
    for element in soup(_NOT_TEXT):
        element.decompose()
    for summary in soup("summary"):  # above what it can hide
        summary.name = "p"
    level_tables(soup)
    for instruction in soup.find_all(string=lambda text: isinstance(text, ProcessingInstruction)):
        instruction.extract()
    text = MarkdownConverter(
        heading_style="ATX",
        strip=["a", "img"],
        table_infer_header=True,
        escape_asterisks=False,
        escape_underscores=False,
        escape_misc=False,
    ).convert_soup(soup)
    text = _BLANK_LINES.sub("\n\n", text).strip()
    first = text.partition("\n")[0].lstrip("# ")
    return f"# {title}\n\n{text}" if title and text and title != first else text


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """A table whose first row has the names of the columns."""
    shown = [
        "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in row) + " |"
        for row in rows
    ]
    return "\n".join([*shown[:1], "|---" * len(rows[0]) + "|", *shown[1:]]) if rows else ""


def markdown_sections(text: str) -> list[TextSection]:
    """One section for each heading, with the headings above it, and for each row of a table.

    A heading directly under another one begins no new chunk: the other would stand alone in its own.
    """
    lines = list(
        accumulate((len(line) for line in text.split("\n")), lambda at, n: at + n + 1, initial=0)
    )
    sections = []
    above: list[tuple[int, str]] = []
    heading = ""
    tokens = _MARKDOWN.parse(text)
    for before, opening, inline in zip([None, *tokens], tokens, tokens[1:], strict=False):
        if opening.level or opening.map is None:
            continue
        if opening.type == "table_open":
            sections += _rows(lines, opening.map, heading)
        elif opening.type == "heading_open":
            border = before is None or before.type != "heading_close"
            level = int(opening.tag[1:])
            above = [(outer, title) for outer, title in above if outer < level]
            above.append((level, " ".join(inline.content.split())))
            heading = " > ".join(title for _, title in above if title)
            sections.append(TextSection(lines[opening.map[0]], heading=heading, border=border))
    return sections


def _rows(lines: Sequence[int], place: Sequence[int], heading: str) -> list[TextSection]:
    """The rows of a table, each with the place of its names, and what follows."""
    first, end = place
    header = (lines[first], lines[first + 2] - 1)
    rows = [
        TextSection(lines[line], heading=heading, border=False, row=line - first, header=header)
        for line in range(first + 2, end)  # after the names, which are row 1, and the dashes
    ]
    after = TextSection(lines[end], heading=heading, border=False)
    return [*rows, after] if rows and end < len(lines) - 1 else rows
