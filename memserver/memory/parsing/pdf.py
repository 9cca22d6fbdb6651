"""PDF, by PDFium."""

import re

import pypdfium2
from pypdfium2 import raw

from memserver.errors import (
    DocumentCorrupt,
    DocumentEmpty,
    DocumentEncrypted,
    DocumentWithoutText,
)
from memserver.memory.parsing.base import Parsed, SourceFile, TextSection, plain

_HYPHEN = re.compile("[\x02\ufffe]\r?\n?")
"""How PDFium writes a hyphen at the end of a line: the word goes on."""
_SHOWN_PAGES = 20


def parse_pdf(source: SourceFile) -> Parsed:
    """The text of all pages.

    Raises:
        DocumentEncrypted: it needs a password.
        DocumentCorrupt: it can't be opened.
        DocumentEmpty: it has no pages, or nothing on them.
        DocumentWithoutText: its pages are images only.
    """
    try:
        document = pypdfium2.PdfDocument(source.content)
    except pypdfium2.PdfiumError as error:
        if error.err_code == raw.FPDF_ERR_PASSWORD:
            raise DocumentEncrypted(
                "The PDF is protected by a password.",
                hint="Save it without one, and send it again.",
            ) from error
        raise DocumentCorrupt(f"The PDF can't be opened: {error}") from error
    texts, images = [], 0
    for number in range(len(document)):
        text, pictures = _page(document, number)
        texts.append(text)
        images += pictures
    if not any(texts):
        if images:
            raise DocumentWithoutText(
                f"The PDF's {len(texts)} pages are images without text.",
                hint="Run a text recognition (OCR) over it, and send the result.",
            )
        raise DocumentEmpty("There is no text in the PDF.")
    return _join(texts)


def _page(document: pypdfium2.PdfDocument, number: int) -> tuple[str, bool]:
    """A page's text, and whether there is an image; a page that is damaged has none."""
    try:
        page = document[number]
        text = page.get_textpage().get_text_range()
        image = not text.strip() and any(
            page.get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE], max_depth=5)
        )
    except pypdfium2.PdfiumError:
        return "", False
    return plain(_HYPHEN.sub("", text)).strip(), image


def _join(texts: list[str]) -> Parsed:
    sections, empty, at = [], [], 0
    for number, text in enumerate(texts, start=1):
        if not text:
            empty.append(number)
            continue
        sections.append(TextSection(at, page=number, border=False))
        at += len(text) + 1
    warnings = []
    if empty:
        shown = ", ".join(map(str, empty[:_SHOWN_PAGES])) + (", …" if empty[_SHOWN_PAGES:] else "")
        warnings.append(f"No text on {len(empty)} of {len(texts)} pages: {shown}.")
    return Parsed("\n".join(filter(None, texts)), sections, pages=len(texts), warnings=warnings)
