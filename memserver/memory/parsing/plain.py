"""Plain text, and source code, which is cut between lines, and rather where a definition begins."""

import re

from memserver.memory.parsing.base import SHORTEST_SENTENCE, Parsed, SourceFile, TextSection, plain
from memserver.memory.parsing.encoding import decode

_DEFINITION = re.compile(
    r"^(?:(?:export|default|public|private|protected|internal|static|async|abstract|final|sealed|pub"
    r"(?:\([^)\n]*\))?|unsafe|extern|inline|virtual|create(?: or replace)?)[ \t]+)*"
    r"(?:def|class|function|func|fn|fun|impl|struct|enum|trait|interface|type|module|namespace|object"
    r"|protocol|extension|package|record|sub|procedure|table|view)[ \t*]+[^\n]*[\w)>:{;]",
    re.MULTILINE | re.IGNORECASE,
)
"""The line on which a definition begins that stands in nothing, as most languages write it."""
_LONGEST_HEADING = 100


def parse_text(source: SourceFile) -> Parsed:
    decoded = decode(source.content, source.charset)
    return Parsed(plain(decoded.text), warnings=decoded.warnings)


def parse_code(source: SourceFile) -> Parsed:
    """All of it; the heading of a passage is the line of the definition that it stands in."""
    decoded = decode(source.content, source.charset)
    text = plain(decoded.text)
    sections = [
        TextSection(found.start(), heading=found[0].rstrip(" :{(")[:_LONGEST_HEADING])
        for found in _DEFINITION.finditer(text)
    ]
    return Parsed(text, sections, _lines(text), warnings=decoded.warnings)


def _lines(text: str) -> list[int]:
    starts, at = [0], 0
    while (at := text.find("\n", at) + 1) > 0:
        if at - starts[-1] >= SHORTEST_SENTENCE:
            starts.append(at)
    return starts
