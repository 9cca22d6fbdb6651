"""Presentations: PowerPoint's by python-pptx, OpenDocument's by odfdo. A slide is a page, its title a heading."""

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from zipfile import BadZipFile

import odfdo
from lxml.etree import LxmlError
from pptx import Presentation
from pptx.exc import PythonPptxError

from memserver.errors import DocumentCorrupt
from memserver.memory.parsing.base import Parsed, SourceFile, plain
from memserver.memory.parsing.building import TextBuilder
from memserver.memory.parsing.markup import markdown_sections, markdown_table

_DIAGRAM = "/diagramData"
_DIAGRAM_TEXT = re.compile(rb"<a:t>([^<]+)</a:t>")
_FIELDS = {"page-number", "date-time", "header", "footer", "page"}
_DAMAGE = (BadZipFile, LxmlError, PythonPptxError, KeyError, ValueError, AttributeError)


def parse_pptx(source: SourceFile) -> Parsed:
    """Titles, texts, tables, figures of charts and diagrams, and the speaker's notes."""
    builder = TextBuilder(source.language)
    try:
        deck = Presentation(io.BytesIO(source.content))
        for slide in deck.slides:
            title = slide.shapes.title
            shapes = (each for each in slide.shapes if title is None or each != title)
            blocks = [block for shape in shapes for block in _shape(shape)]
            blocks += _diagrams(slide)
            notes = slide.notes_slide.notes_text_frame if slide.has_notes_slide else None
            _add_slide(builder, title.text if title else "", blocks, notes.text if notes else "")
    except _DAMAGE as error:
        raise DocumentCorrupt(f"The presentation is damaged: {error}.") from error
    return builder.build()


def parse_odp(source: SourceFile) -> Parsed:
    """Titles, texts, tables and the speaker's notes."""
    builder = TextBuilder(source.language)
    try:
        deck = odfdo.Document(io.BytesIO(source.content))
        for page in deck.body.get_elements("draw:page"):
            parts: dict[str, list[str]] = {}
            for part in page.children:
                kind = part.tag if part.tag == "presentation:notes" else _class(part)
                parts.setdefault(kind, []).extend(_blocks(part))
            title = " ".join(parts.pop("title", []))
            notes = "\n".join(parts.pop("presentation:notes", []))
            _add_slide(builder, title, [block for each in parts.values() for block in each], notes)
    except _DAMAGE as error:
        raise DocumentCorrupt(f"The presentation is damaged: {error}.") from error
    return builder.build()


def _add_slide(builder: TextBuilder, title: str, blocks: Iterable[str], notes: str) -> None:
    builder.pages = (builder.pages or 0) + 1
    title = " ".join(title.split())
    parts = [f"# {title}" if title else "", *blocks, f"Notes: {notes}" if notes.strip() else ""]
    text = plain("\n\n".join(part for part in parts if part.strip()))
    if text:
        builder.add_document(Parsed(text, markdown_sections(text)), page=builder.pages)
    else:
        builder.warnings.append(f"No text on slide {builder.pages}.")


def _shape(shape: object) -> Iterator[str]:
    """The text of a shape of python-pptx, which has no types."""
    for inner in getattr(shape, "shapes", ()):  # a group
        yield from _shape(inner)
    if getattr(shape, "has_table", False):
        rows = shape.table.rows  # type: ignore[attr-defined]
        yield markdown_table([[cell.text for cell in row.cells] for row in rows])
    elif getattr(shape, "has_chart", False):
        yield from _chart(shape.chart)  # type: ignore[attr-defined]
    elif getattr(shape, "has_text_frame", False):
        yield "\n".join(
            f"{'  ' * paragraph.level}- {paragraph.text}" if paragraph.level else paragraph.text
            for paragraph in shape.text_frame.paragraphs  # type: ignore[attr-defined]
            if paragraph.text.strip()
        )


def _chart(chart: object) -> Iterator[str]:
    for plot in chart.plots:  # type: ignore[attr-defined]
        series = [*plot.series]
        names = ["", *(each.name for each in series)]
        values = zip(*(each.values for each in series), strict=False)
        rows = [
            [str(category), *("" if value is None else f"{value:g}" for value in row)]
            for category, row in zip(plot.categories, values, strict=False)
        ]
        yield markdown_table([names, *rows])


def _diagrams(slide: object) -> list[str]:
    """The texts of SmartArt, which stands in parts of its own."""
    relations = slide.part.rels.values()  # type: ignore[attr-defined]
    parts = [each.target_part for each in relations if each.reltype.endswith(_DIAGRAM)]
    return ["\n".join(t.decode() for t in _DIAGRAM_TEXT.findall(part.blob)) for part in parts]


def _class(part: odfdo.Element) -> str:
    return str(part.get_attribute("presentation:class") or "")


def _blocks(element: odfdo.Element) -> Iterator[str]:
    if element.tag == "table:table":
        rows: Sequence[odfdo.Element] = element.get_elements("descendant::table:table-row")
        yield markdown_table(
            [[cell.text_recursive for cell in row.get_elements("table:table-cell")] for row in rows]
        )
    elif element.tag in {"text:p", "text:h"}:
        yield element.text_recursive.strip()
    elif _class(element) not in _FIELDS:
        for child in element.children:
            yield from _blocks(child)
