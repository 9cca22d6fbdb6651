"""E-mail, by the standard library: headers, the text, and what is attached, which may be e-mail again."""

import re
import struct
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from email import policy
from email.errors import MessageError
from email.message import EmailMessage
from email.parser import BytesParser
from typing import Any
from zipfile import BadZipFile

from memserver.errors import DocumentCorrupt, DocumentEmpty, DocumentEncrypted, DocumentError
from memserver.memory.parsing.base import Parsed, SourceFile, plain
from memserver.memory.parsing.building import TextBuilder
from memserver.memory.parsing.detect import detect
from memserver.memory.parsing.encoding import decode
from memserver.memory.parsing.markup import html_to_markdown, markdown_sections
from memserver.memory.parsing.parse import parse

_HEADERS = ("Subject", "From", "To", "Cc", "Date")
_MBOX = re.compile(rb"(?:\A|\n\r?\n)From [^\n]*\n")
_QUOTED = re.compile(rb"^>(?=>*From )", re.MULTILINE)
"""What a mailbox puts before a line that would begin the next message."""
_MOST_PARTS = 500
_DEEPEST = 5  # messages within messages
_SIGNATURES = {"application/pgp-signature", "application/pkcs7-signature"}
_ENCRYPTED = {"multipart/encrypted", "application/pkcs7-mime", "application/x-pkcs7-mime"}
_SHORT = 0.3
"""Of an HTML part's length: a plain part that is shorter only says that there is another one."""
_MALFORMED = (MessageError, ValueError, LookupError, AttributeError, TypeError)

_BROKEN = (
    *(ValueError, LookupError, AttributeError, TypeError, ArithmeticError, AssertionError, OSError),
    *(RuntimeError, EOFError),
    *(BadZipFile, zlib.error, struct.error, SyntaxError),
)
"""What libraries raise on a damaged file; the mail is read without it."""


def parse_email(source: SourceFile) -> Parsed:
    """A message, or all of a mailbox; the subject is the heading, an attachment's name one below it."""
    content = source.content.lstrip()
    messages = [content]
    if content.startswith(b"From "):
        messages = [_QUOTED.sub(b"", message) for message in _MBOX.split(content)[1:]]
    reader = _Reader(TextBuilder(source.language), source)
    for message in messages:
        reader.read(_parsed(message), ())
    if len(messages) == 1:
        reader.builder.metadata |= _metadata(_parsed(messages[0]))
    return reader.builder.build()


def _parsed(content: bytes) -> EmailMessage:
    message = BytesParser(policy=policy.default).parsebytes(content)
    if not any(_header(message, name) for name in _HEADERS):
        raise DocumentCorrupt(
            "This is no e-mail, though its name or type says so.",
            hint="Send it under the name and type of what it is.",
        )
    return message


@dataclass(slots=True)
class _Reader:
    builder: TextBuilder
    source: SourceFile
    parts: int = 0
    began: float = field(default_factory=time.monotonic)

    def read(self, message: EmailMessage, above: tuple[str, ...]) -> None:
        """Add a message: its headers and texts, then what is attached."""
        headings = (*above, _header(message, "Subject") or "E-mail")
        place = " > ".join(headings)
        shown = [f"{name}: {value}" for name in _HEADERS if (value := _header(message, name))]
        texts: list[EmailMessage] = []
        attached: list[EmailMessage] = []
        for part in _leaves(message):
            self.parts += 1
            if self.parts > _MOST_PARTS:
                self.builder.warnings.append(f"Only the first {_MOST_PARTS} parts were read.")
                break
            is_text = part.get_content_type() in {"text/plain", "text/html"}
            is_text = is_text and part.get_content_disposition() != "attachment"
            (texts if is_text else attached).append(part)
        body = "\n\n".join(filter(None, map(self._text, texts)))
        text = plain("\n".join(shown) + "\n\n" + body).strip()
        if not texts and not attached and message.get_content_type() in _ENCRYPTED:
            raise DocumentEncrypted("The e-mail is encrypted.", hint="Save it decrypted.")
        is_html = any(part.get_content_subtype() == "html" for part in texts)
        sections = markdown_sections(text) if is_html else []
        self.builder.add_document(Parsed(text, sections), heading=place)
        for part in attached:
            self._attached(part, headings)

    def _text(self, part: EmailMessage) -> str:
        decoded = decode(_content(part), part.get_content_charset() or "")
        self.builder.warnings += decoded.warnings
        if part.get_content_subtype() == "html":
            return html_to_markdown(decoded.text)
        return decoded.text

    def _attached(self, part: EmailMessage, headings: tuple[str, ...]) -> None:
        name = part.get_filename() or ""
        try:
            if part.get_content_type() == "message/rfc822":
                self._message(part, headings)
                return
            content, kind = _content(part), str(part.get("Content-Type", ""))
            found = detect(content, name, kind)
            charset = part.get_content_charset() or ""
            left = self.source.seconds - (time.monotonic() - self.began)
            file = replace(self.source, content=content, kind=found, charset=charset, seconds=left)
            parsed = parse(file)
        except DocumentEmpty:
            return
        except (DocumentError, *_BROKEN) as error:
            what = f"The attachment {name!r}" if name else "An attachment"
            why = error.message if isinstance(error, DocumentError) else "The parser failed on it."
            self.builder.warnings.append(f"{what} was left out: {why}")
            return
        place = " > ".join((*headings, name or "Attachment"))
        self.builder.add_document(parsed, heading=place)

    def _message(self, part: EmailMessage, headings: tuple[str, ...]) -> None:
        for inner in part.iter_parts():
            if len(headings) >= _DEEPEST:
                raise DocumentError("It is nested too deeply.")
            if isinstance(inner, EmailMessage):
                self.read(inner, headings)


def _leaves(part: EmailMessage) -> Iterator[EmailMessage]:
    """The parts that hold something; of alternatives the best one."""
    kind = part.get_content_type()
    if kind in _SIGNATURES or kind in _ENCRYPTED:
        return
    if not part.is_multipart() or kind == "message/rfc822":
        yield part
        return
    inner = [each for each in part.iter_parts() if isinstance(each, EmailMessage)]
    if kind == "multipart/alternative":
        inner = _best(inner)
    for each in inner:
        yield from _leaves(each)


def _best(parts: Sequence[EmailMessage]) -> list[EmailMessage]:
    """The plain text, unless it is there for form only, and what is no text."""
    texts = [part for part in parts if part.get_content_type() == "text/plain"]
    rich = [part for part in parts if part not in texts]
    if not texts:
        return rich[-1:]
    leaves = (leaf for part in rich for leaf in _leaves(part))
    html = next((leaf for leaf in leaves if leaf.get_content_type() == "text/html"), None)
    if html is None:
        return [*texts, *rich]
    length = len(html_to_markdown(decode(_content(html)).text))
    others = [part for part in rich if part.get_content_maintype() not in {"text", "multipart"}]
    is_short = len(_content(texts[0])) < _SHORT * length
    return [*(rich[:1] if is_short else texts[:1]), *others]


def _content(part: EmailMessage) -> bytes:
    payload = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b""


def _header(message: EmailMessage, name: str) -> str:
    try:
        value = str(message.get(name, ""))
    except _MALFORMED:  # the raw one then
        raw = {key.lower(): str(text) for key, text in message.raw_items()}
        value = raw.get(name.lower(), "")
    return " ".join(value.split())[:1000]


def _metadata(message: EmailMessage) -> dict[str, Any]:
    found = {name.lower(): value for name in _HEADERS if (value := _header(message, name))}
    with suppress(*_MALFORMED):
        found["date"] = message["Date"].datetime.isoformat()
    return found
