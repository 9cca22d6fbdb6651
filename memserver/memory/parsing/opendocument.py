"""OpenDocument texts, by odfdo."""

import io
from zipfile import BadZipFile

import odfdo
from lxml.etree import LxmlError

from memserver.errors import DocumentCorrupt
from memserver.memory.parsing.base import Parsed, SourceFile, plain
from memserver.memory.parsing.markup import markdown_sections


def parse_odt(source: SourceFile) -> Parsed:
    """Headings, paragraphs, lists, tables and notes, as Markdown; no images."""
    try:
        text = plain(str(odfdo.Document(io.BytesIO(source.content)).to_markdown()))
    except (BadZipFile, LxmlError, KeyError, ValueError, AttributeError) as error:
        raise DocumentCorrupt(f"The ODT file is damaged: {error}.") from error
    return Parsed(text, markdown_sections(text))
