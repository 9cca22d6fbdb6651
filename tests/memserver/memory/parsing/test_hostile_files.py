"""Files that are damaged, locked, mislabelled or meant to do harm: a clear error, at a bounded cost."""

import io
import zipfile
from pathlib import Path

import pytest

from memserver.errors import (
    DocumentCorrupt,
    DocumentEncrypted,
    DocumentError,
    DocumentTooCostly,
    UnsupportedDocument,
)
from memserver.memory.parsing import detect as detection
from memserver.memory.parsing.base import Kind, Parsed, SourceFile
from memserver.memory.parsing.detect import detect
from memserver.memory.parsing.parse import parse
from memserver.memory.parsing.sandbox import Sandbox

FILES = Path(__file__).parents[3] / "data" / "documents"
MAIN = {
    "book.docx": "word/document.xml",
    "book.odt": "content.xml",
    "book.epub": "EPUB/content.opf",
    "talk.odp": "content.xml",
    "talk.pptx": "ppt/slides/slide2.xml",
}


def file(name: str) -> bytes:
    return (FILES / name).read_bytes()


def read(content: bytes, name: str = "") -> Parsed:
    return parse(SourceFile(content, detect(content, name)))


def changed(name: str, **parts: bytes) -> bytes:
    """A file with other parts, by the last names of their paths."""
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(file(name))) as good,
        zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for part in good.namelist():
            archive.writestr(part, parts.pop(part.rpartition("/")[2], good.read(part)))
        for part, content in parts.items():
            archive.writestr(part, content)
    return buffer.getvalue()


def with_doctype(name: str, doctype: str, text: str) -> bytes:
    """A file whose main part declares entities and uses one as its text."""
    main = MAIN[name]
    with zipfile.ZipFile(io.BytesIO(file(name))) as good:
        xml = good.read(main).decode()
    declaration, _, body = xml.partition("?>")
    body = body.replace("Where it stands", text).replace("The cape", text)
    body = body.replace("The lighthouse of Farol", text)
    last = main.rpartition("/")[2]
    return changed(name, **{last: f"{declaration}?><!DOCTYPE r [{doctype}]>{body}".encode()})


@pytest.mark.parametrize("name", MAIN)
def test_an_entity_gives_nobody_the_files_of_the_server(name: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("swordfish")
    content = with_doctype(name, f'<!ENTITY x SYSTEM "file://{secret}">', "&x;")
    try:
        parsed = read(content)
        shown = parsed.text + str(parsed.metadata)
    except DocumentError as error:
        shown = error.message
    assert "swordfish" not in shown


@pytest.mark.parametrize("name", ["book.odt", "book.epub", "talk.pptx"])
async def test_entities_that_multiply_cost_a_bounded_amount(name: str) -> None:
    doctype = '<!ENTITY a0 "haha">' + "".join(
        f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10)
    )
    content = with_doctype(name, doctype, "&a9;")
    try:
        parsed = await Sandbox(megabytes=512).parse(content, detect(content))
        assert len(parsed.text) < 100_000
    except DocumentError as error:
        assert "Traceback" not in error.message  # noqa: PT017 - either is right


@pytest.mark.parametrize(
    ("content", "name", "error", "message"),
    [
        (changed("book.odt", **{"manifest.xml": b"<m><encryption-data/></m>"}), "a.odt", DocumentEncrypted, "password"),
        (changed("book.epub", **{"META-INF/encryption.xml": b'<e><CipherReference URI="EPUB/text/ch001.xhtml"/></e>'}), "a.epub", DocumentEncrypted, "DRM"),
        (b"MIME-Version: 1.0\nSubject: x\nFrom: a@b.example\nContent-Type: application/pkcs7-mime; smime-type=enveloped-data\nContent-Transfer-Encoding: base64\n\nAAAA\n", "a.eml", DocumentEncrypted, "encrypted"),
        (changed("book.odt", **{"content.xml": b"<broken"}), "a.odt", DocumentCorrupt, "damaged"),
        (changed("talk.odp", **{"content.xml": b"<broken"}), "a.odp", DocumentCorrupt, "damaged"),
        (changed("talk.pptx", **{"slide2.xml": b"<broken"}), "a.pptx", DocumentCorrupt, "damaged"),
        (changed("book.epub", **{"content.opf": b"<broken"}), "a.epub", DocumentCorrupt, "damaged"),
        (file("book.epub")[:-900], "a.epub", DocumentCorrupt, "end is missing"),
        (b"just words", "a.pptx", DocumentCorrupt, "no PPTX"),
        (b"just words", "a.epub", DocumentCorrupt, "no EPUB"),
        (b"just words", "a.xlsx", DocumentCorrupt, "no XLSX"),
        (b"just words", "a.eml", DocumentCorrupt, "no e-mail"),
        (b'{"nbformat": 4, "cells": 7}', "a.ipynb", DocumentCorrupt, "notebook"),
        (b"\x00\x00\x00\x18ftypmp42\x00\x00", "a.mp4", UnsupportedDocument, "film"),
    ],
)  # fmt: skip
def test_a_file_that_is_damaged_or_locked_says_so(
    content: bytes, name: str, error: type[DocumentError], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        read(content, name)
    assert type(caught.value) is error


@pytest.mark.parametrize(
    ("content", "name", "kind"),
    [
        (file("book.docx"), "a.pdf", "docx"),
        (file("catch.xlsx"), "a.csv", "xlsx"),
        (file("talk.pptx"), "a.docx", "pptx"),
        (file("book.rtf"), "a.doc", "rtf"),
        (b"<html><body><table><tr><td>a</td></tr></table></body></html>", "report.xls", "html"),
        (b"a\tb\n1\t2\n", "report.xls", "csv"),
        (file("forward.eml"), "", "email"),
        (file("book.ipynb"), "notes.json", "notebook"),
        (b'{"a": 1}\n{"a": 2}\n', "a.json", "jsonl"),
        (b'[{"a": 1}]', "", "json"),
        (b"a;b\n1;2\n3;4\n", "", "csv"),
        (b"Dear Ann, yes.\nOh, well.\nSo, bye.\n", "", "text"),
        (b"Subject: a word\n\nand that is it", "", "text"),
        (b"From zoe@farol Mon Mar  4 2024\n" + file("forward.eml"), "", "email"),
    ],
)
def test_a_wrong_name_does_not_matter_where_the_content_is_clear(
    content: bytes, name: str, kind: Kind
) -> None:
    assert detect(content, name) == kind


def test_an_archive_of_very_many_files_is_refused_unopened() -> None:
    content = bytearray(file("book.docx"))
    end = content.rfind(b"PK\x05\x06")
    content[end + 8 : end + 12] = b"\xff\xff\xff\xff"
    with pytest.raises(DocumentTooCostly, match="more than 20000 files"):
        detect(bytes(content))


@pytest.mark.parametrize("lost", ["nav.xhtml", "toc.ncx"])
def test_a_chapter_without_headings_has_its_title_in_the_table_of_contents(lost: str) -> None:
    bare = b"<html><head><title/></head><body><p>The bell rings at noon.</p></body></html>"
    parsed = read(changed("book.epub", **{"ch001.xhtml": bare, lost: b"<html>&nbsp;"}), "a.epub")
    at = parsed.text.index("The bell rings")
    assert [s.heading for s in parsed.sections if s.start <= at][-1] == "The cape"


@pytest.mark.parametrize("name", ["book.docx", "book.odt"])
def test_an_archive_with_a_password_says_so(name: str) -> None:
    content = bytearray(file(name))
    content[content.find(b"PK\x01\x02") + 8] |= 1  # the flag of an encrypted entry
    with pytest.raises(DocumentEncrypted, match="password"):
        detect(bytes(content))


def test_without_the_extra_a_presentation_is_refused_with_what_helps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(detection, "find_spec", lambda _: None)
    with pytest.raises(UnsupportedDocument, match="PPTX") as caught:
        detect(file("talk.pptx"))
    assert "`files`" in caught.value.hint
