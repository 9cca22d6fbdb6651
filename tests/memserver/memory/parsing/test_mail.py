"""E-mail as mailers write it: the text decoded, attachments read, what is left out reported."""

import base64
import io
import zipfile
from collections.abc import Iterable
from email.message import EmailMessage
from pathlib import Path

from memserver.memory.parsing.base import Parsed, SourceFile
from memserver.memory.parsing.detect import detect
from memserver.memory.parsing.parse import parse

FILES = Path(__file__).parents[3] / "data" / "documents"


def read(content: bytes, name: str = "a.eml") -> Parsed:
    return parse(SourceFile(content, detect(content, name)))


def message(subject: str = "Bells", text: str = "", **headers: str) -> EmailMessage:
    made = EmailMessage()
    made["Subject"] = subject
    made["From"] = "Zoë <zoe@farol.example>"
    if text:
        made.set_content(text, **headers)
    return made


def headings(parsed: Parsed) -> Iterable[str]:
    return dict.fromkeys(section.heading for section in parsed.sections)


def test_text_and_attachments_of_a_forwarded_mail_are_read() -> None:
    parsed = read((FILES / "forward.eml").read_bytes())
    assert "der Schlüssel des Leuchtturms liegt unter dem dritten Stein." in parsed.text
    assert "die vierte Glocke läutet nur bei Nebel" in parsed.text
    assert "Boat: Havørn | Skipper: Wilhelmina Vendelbo" in parsed.text
    assert "Jörgen Fält, feeds nine geese" in parsed.text
    assert "=C3" not in parsed.text
    inner = "Fwd: Glocken > Schlüssel für den Leuchtturm"
    assert {
        "Fwd: Glocken",
        inner,
        f"{inner} > catch.csv",
        f"{inner} > catch.xlsx > catch",
        "Fwd: Glocken > book.epub > The cape > The keeper",
    } <= set(headings(parsed))
    assert parsed.metadata == {
        "subject": "Fwd: Glocken",
        "from": "Ansgar Lueders <ansgar@farol.example>",
        "to": "ida@farol.example",
        "date": "2026-11-30T01:34:17+00:00",
    }
    assert parsed.warnings == []


def test_quoted_printable_and_base64_in_any_charset_are_decoded() -> None:
    for charset, way in (
        ("utf-8", "base64"), ("iso-8859-1", "quoted-printable"), ("windows-1252", "8bit"),
    ):  # fmt: skip
        mail = message("Schlüssel", "Der Schlüssel hängt am Haken.\n", charset=charset, cte=way)
        assert "Der Schlüssel hängt am Haken." in read(mail.as_bytes()).text


def test_of_alternatives_one_is_read_and_the_fuller_one_if_the_plain_one_says_nothing() -> None:
    both = message(text="The bell rings at noon, on all days of the week.")
    both.add_alternative("<p>The bell rings at <b>noon</b>, on all days.</p>", subtype="html")
    assert read(both.as_bytes()).text.count("The bell rings") == 1
    empty = message(text="See the HTML part.")
    empty.add_alternative("<h1>Bells</h1>" + "<p>The bell rings at noon.</p>" * 20, subtype="html")
    parsed = read(empty.as_bytes())
    assert "See the HTML" not in parsed.text
    assert "Bells > Bells" in headings(parsed)


def test_what_is_attached_and_can_not_be_read_is_reported() -> None:
    mail = message(text="Look at the picture.")
    mail.add_attachment(
        b"\x89PNG\r\n\x1a\n\0", maintype="image", subtype="png", filename="bell.png"
    )
    pdf = (FILES / "encrypted.pdf").read_bytes()
    mail.add_attachment(pdf, maintype="application", subtype="pdf", filename="a.pdf")
    assert read(mail.as_bytes()).warnings == [
        "The attachment 'bell.png' was left out: This is a PNG image.",
        "The attachment 'a.pdf' was left out: The PDF is protected by a password.",
    ]


def test_an_attachment_on_which_a_parser_fails_does_not_take_the_mail_with_it() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("word/document.xml", "<x/>")
    mail = message(text="Look at the letter.")
    mail.add_attachment(buffer.getvalue(), maintype="application", subtype="zip", filename="a.docx")
    parsed = read(mail.as_bytes())
    assert "Look at the letter." in parsed.text
    assert parsed.warnings == ["The attachment 'a.docx' was left out: The parser failed on it."]


def test_the_pages_of_an_attached_pdf_are_known() -> None:
    mail = message(text="Here it is.")
    pdf = (FILES / "two_pages.pdf").read_bytes()
    mail.add_attachment(pdf, maintype="application", subtype="octet-stream", filename="a.pdf")
    parsed = read(mail.as_bytes())
    assert [section.page for section in parsed.sections if section.page] == [1, 2]


def test_all_messages_of_a_mailbox_are_read() -> None:
    first, second = message("One", "Gulls."), message("Two", "Terns.")
    box = b"".join(b"From a Mon Mar  4 2024\n" + m.as_bytes() + b"\n" for m in (first, second))
    parsed = read(box, "a.mbox")
    assert list(headings(parsed)) == ["One", "Two"]
    assert "Gulls." in parsed.text
    assert "Terns." in parsed.text


def test_messages_within_messages_end_somewhere() -> None:
    inner = message("Inmost", "The end.")
    for depth in range(8):
        outer = message(f"Level {depth}", "There is one more.")
        outer.add_attachment(inner)
        inner = outer
    parsed = read(inner.as_bytes())
    assert "Level 3" in parsed.text
    assert "Inmost" not in parsed.text
    assert "nested too deeply" in parsed.warnings[0]


def test_a_mail_with_malformed_headers_is_read() -> None:
    content = (
        b"From: =?utf-8?B?" + base64.b64encode(b"\xff\xfe") + b"?= <<a@@>\nDate: never\n"
        b"Subject: =?klingon?Q?=41?=\nTo: ,,;\nContent-Type: text/plain; charset=klingon\n\nStill text.\n"
    )
    parsed = read(content)
    assert "Still text." in parsed.text
    assert "'klingon' is not known" in parsed.warnings[0]
