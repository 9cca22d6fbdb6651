"""PDF, by PDFium."""

import re

import pypdfium2
from pypdfium2 import raw

from memserver.errors import DocumentCorrupt, DocumentEmpty, DocumentEncrypted, DocumentWithoutText
from memserver.memory.parsing.base import Parsed, SourceFile, TextSection, plain
from memserver.memory.parsing.ocr import Recognizer

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
    recognizer = Recognizer(source.tesseract, source.seconds)
    texts, images, recognized, unread = [], 0, [], 0
    for number in range(len(document)):
        text, page = _page(document, number)
        if page is not None:
            images += 1
            found = recognizer.read(page)
            unread += found is None
            text = plain(found or "")
            recognized += [number + 1] if text else []
        texts.append(text)
    if not any(texts):
        if images:
            raise DocumentWithoutText(
                f"The PDF's {len(texts)} pages are images without text.", hint=_hint(source)
            )
        raise DocumentEmpty("There is no text in the PDF.")
    warnings = []
    if recognized:
        warnings.append(
            f"The text of {len(recognized)} of {len(texts)} pages was recognized in images, and may "
            f"have mistakes: {_list(recognized)}."
        )
    if unread and source.tesseract:
        warnings.append(
            f"{unread} pages with images were not recognized: the time was over, or tesseract failed."
        )
    return _join(texts, warnings)


def _hint(source: SourceFile) -> str:
    if source.tesseract:
        return "Nothing was recognized in them. Scan them again, with more contrast."
    return (
        "Run a text recognition (OCR) over it, and send the result. Or have tesseract installed on the "
        "server, which recognizes it then."
    )


def _page(document: pypdfium2.PdfDocument, number: int) -> tuple[str, pypdfium2.PdfPage | None]:
    """A page's text, and the page if it has an image instead; a page that is damaged has neither."""
    try:
        page = document[number]
        text = page.get_textpage().get_text_range()
        image = not text.strip() and any(
            page.get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE], max_depth=5)
        )
    except pypdfium2.PdfiumError:
        return "", None
    return plain(_HYPHEN.sub("", text)).strip(), page if image else None


def _list(pages: list[int]) -> str:
    return ", ".join(map(str, pages[:_SHOWN_PAGES])) + (", …" if pages[_SHOWN_PAGES:] else "")


def _join(texts: list[str], warnings: list[str]) -> Parsed:
    sections, empty, at = [], [], 0
    for number, text in enumerate(texts, start=1):
        if not text:
            empty.append(number)
            continue
        sections.append(TextSection(at, page=number, border=False))
        at += len(text) + 1
    if empty:
        warnings.append(f"No text on {len(empty)} of {len(texts)} pages: {_list(empty)}.")
    return Parsed("\n".join(filter(None, texts)), sections, pages=len(texts), warnings=warnings)
