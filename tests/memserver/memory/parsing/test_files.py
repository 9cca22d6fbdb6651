"""Files of every kind, good and bad, through the process that reads them."""

import asyncio
import contextlib
import io
import json
import os
import zipfile
from itertools import pairwise
from pathlib import Path

import pytest

from memserver.errors import (
    DocumentCorrupt,
    DocumentEmpty,
    DocumentEncrypted,
    DocumentError,
    DocumentTooCostly,
    DocumentTooLarge,
    DocumentWithoutText,
    UnsupportedDocument,
)
from memserver.memory.parsing.base import LONGEST_TEXT, MOST_SECTIONS, Kind, Parsed
from memserver.memory.parsing.detect import detect
from memserver.memory.parsing.sandbox import Sandbox
from tests.support.servers import PROC, running_processes, wait_for

FILES = Path(__file__).parents[3] / "data" / "documents"
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(512)
HTML = """<!DOCTYPE html><html><head><title>Roses</title><script>var hidden;</script></head><body>
<nav>Home</nav><h2>White roses</h2><p>They need <b>sun</b>_light &amp; water.</p>
<table><tr><th>month</th></tr><tr><td>June</td></tr></table></body></html>"""


async def read(content: bytes, name: str = "", content_type: str = "") -> Parsed:
    return await Sandbox().parse(content, detect(content, name, content_type))


def file(name: str) -> bytes:
    return (FILES / name).read_bytes()


def zipped(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, "<x/>")
    return buffer.getvalue()


def children() -> list[int]:
    """The processes that read files for us."""
    ours = [pid for pid, fields in running_processes() if int(fields[1]) == os.getpid()]
    return [pid for pid in ours if b"parsing.worker" in (PROC / str(pid) / "cmdline").read_bytes()]


def placed(parsed: Parsed) -> list[tuple[str, str]]:
    """The heading of each section, but for rows of tables, with the text that stands there."""
    sections = [section for section in parsed.sections if section.row is None]
    starts = [*(section.start for section in sections), len(parsed.text)]
    texts = [parsed.text[a:b].strip() for a, b in pairwise(starts)]
    return [(section.heading, text) for section, text in zip(sections, texts, strict=True)]


async def test_a_pdf_gives_its_text_by_page():
    parsed = await read(file("two_pages.pdf"))
    assert parsed.pages == 2
    assert [section.page for section in parsed.sections] == [1, 2]
    second = parsed.sections[1].start
    assert parsed.text[:second].startswith("The lighthouse of Farol was lit in 1844.")
    assert parsed.text[second:].startswith("of white roses behind the tower.")
    assert not parsed.sections[1].border


async def test_a_docx_gives_its_headings_and_its_tables():
    parsed = await read(file("harbour.docx"))
    [rules, fees] = placed(parsed)
    assert rules == ("Harbour rules", "# Harbour rules\n\nEvery boat needs a lamp.")
    assert fees[0] == "Harbour rules > Fees"
    assert "| dinghy | one coin |" in fees[1]


async def test_html_gives_what_a_reader_sees():
    parsed = await read(HTML.encode())
    assert parsed.text.startswith("# Roses\n\n## White roses\n\nThey need **sun**_light & water.")
    assert "| June |" in parsed.text
    assert "hidden" not in parsed.text
    assert "Home" not in parsed.text
    assert [heading for heading, _ in placed(parsed)] == ["Roses", "Roses > White roses"]


async def test_html_is_read_in_the_encoding_that_it_names():
    page = '<html><head><meta charset="windows-1252"></head><body>Müller•s café</body></html>'
    parsed = await read(page.encode("windows-1252"))
    assert parsed.text == "Müller•s café"


async def test_markdown_gives_its_headings_but_not_those_in_code():
    text = "Before.\n\n# One\n\nFirst.\n\n```\n# no heading\n```\n\nTwo\n---\n\nSecond.\n"
    parsed = await read(text.encode(), "notes.md")
    assert parsed.text == text
    assert [heading for heading, _ in placed(parsed)] == ["One", "One > Two"]


async def test_json_lines_give_one_section_for_each_record():
    records = [
        {"title": "Roses", "text": "They are red.", "tags": ["plant", 7], "metadata": {"id": 1}},
        {"name": "Ada", "born": 1815, "likes": ["engines"]},
        "only a text",
    ]
    content = "\n".join(json.dumps(record) for record in records) + "\n\n"
    parsed = await read(content.encode(), "facts.jsonl")
    assert placed(parsed) == [
        ("Roses", "Roses\nThey are red."),
        ("", 'name: Ada\nborn: 1815\nlikes: ["engines"]'),
        ("", "only a text"),
    ]
    assert [section.record for section in parsed.sections] == [1, 2, 3]
    assert parsed.sections[0].tags == ["plant"]
    assert parsed.sections[0].metadata == {"id": 1}


@pytest.mark.parametrize(
    ("text", "language", "sentences"),
    [
        (
            "Dr. Smith came at 3 p.m. on Friday. He left.",
            "en",
            ["Dr. Smith came at 3 p.m. on Friday. ", "He left."],
        ),
        (f"今天{'真' * 30}好。我们去公园吧。", "zh", [f"今天{'真' * 30}好。", "我们去公园吧。"]),
        (
            "यह एक वाक्य है जो बहुत लंबा है और जारी है। यह दूसरा है।",
            "hi",
            ["यह एक वाक्य है जो बहुत लंबा है और जारी है। ", "यह दूसरा है।"],
        ),
        (
            "كيف حالك يا صديقي العزيز في هذا اليوم؟ انا بخير.",
            "ar",
            ["كيف حالك يا صديقي العزيز في هذا اليوم؟ ", "انا بخير."],
        ),
        (
            "Er kam mit dem Schiff am 3. Mai an. Dann ging er.",
            "de",
            ["Er kam mit dem Schiff am 3. Mai an. ", "Dann ging er."],
        ),
        (
            "One sentence that is long enough. Two.",
            "no such language",
            ["One sentence that is long enough. ", "Two."],
        ),
    ],
)
async def test_sentences_are_found_in_many_scripts(text: str, language: str, sentences: list[str]):
    parsed = await Sandbox().parse(text.encode(), "text", language)
    starts = [*parsed.sentences, len(text)]
    assert [text[a:b] for a, b in pairwise(starts)] == sentences


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "windows-1252"])
async def test_text_is_read_in_its_encoding(encoding: str):
    text = "Die Äpfel fürs Frühstück müssen süß sein, größer als üblich. " * 5
    assert (await read(text.encode(encoding))).text == text


@pytest.mark.parametrize(
    ("content", "name", "content_type", "kind"),
    [
        (file("two_pages.pdf"), "notes.txt", "text/plain", "pdf"),
        (file("harbour.docx"), "", "application/octet-stream", "docx"),
        (HTML.encode(), "page.txt", "", "html"),
        (b'{"a": 1}\n{"a": 2}\n', "", "", "jsonl"),
        (b'{"a": 1}\n{"a": 2}\n', "a.txt", "", "text"),
        (b"# Title\n\ntext", "", "", "markdown"),
        (b"# Title\n\ntext", "script.txt", "", "text"),
        (b"plain words", "", "text/markdown; charset=utf-8", "markdown"),
        (b"plain words", "", "", "text"),
        (b"[1, 2]\n[3]", "", "", "text"),
        (b"# a comment\nx = 1\n", "a.py", "", "code"),
        (b"# a comment\n\nx: 1\n", "a.yaml", "text/plain", "code"),
        (b"#!/bin/sh\n# a comment\n\nls\n", "", "", "code"),
        (b"# a comment\n# more\nx = 1\n", "", "", "text"),
        (b"all:\n\ttrue\n", "Makefile", "", "code"),
        (HTML.encode(), "page.php", "", "code"),
        (b"The signature of a PDF is %PDF-1.7, and obj begins one.", "", "", "text"),
        (b"%PDF- is how a PDF begins.", "notes.txt", "", "text"),
        (b"rubbish\n" + file("two_pages.pdf"), "", "", "pdf"),
        (zipped("a/word/document.xml.txt", "word/document.xml"), "a.zip", "", "docx"),
        (zipped("[Content_Types].xml", "word/document2.xml"), "", "", "docx"),
        (b"BZh is a word, as GIF89a is.", "", "", "text"),
        (b"<!-- a comment -->\n# Title\n\ntext", "a.md", "", "markdown"),
        ("﻿# Title\n\ntext".encode(), "", "", "markdown"),
        ("# Title\n\ntext".encode("utf-16"), "", "", "markdown"),
        (b"See [this](https://a.example).\n\n- one\n- two\n", "", "", "markdown"),
    ],
)
def test_the_kind_is_what_the_content_says(
    content: bytes, name: str, content_type: str, kind: Kind
):
    assert detect(content, name, content_type) == kind


@pytest.mark.parametrize(
    ("content", "name", "error", "message"),
    [
        (b"", "a.txt", DocumentEmpty, "empty"),
        (b" \n\x00\n", "a.txt", DocumentEmpty, "empty"),
        (b"<html><body><script>1</script></body></html>", "a.html", DocumentEmpty, "no text"),
        (file("blank.pdf"), "a.pdf", DocumentEmpty, "no text"),
        (b"just words", "a.pdf", DocumentCorrupt, "no PDF"),
        (b"just words", "a.docx", DocumentCorrupt, "no DOCX"),
        (b"%PDF-1.7\nand then rubbish", "a.pdf", DocumentCorrupt, "opened"),
        (file("harbour.docx")[:-500], "a.docx", DocumentCorrupt, "damaged"),
        (zipped("word/document.xml"), "a.docx", DocumentCorrupt, "parser failed"),
        (b'{"a": 1}\n{"a": \n', "a.jsonl", DocumentCorrupt, "Line 2"),
        (b"<div>" * 50_000 + b"x", "a.html", DocumentCorrupt, "deeply"),
        (file("encrypted.pdf"), "a.pdf", DocumentEncrypted, "password"),
        (
            OLE + "EncryptedPackage".encode("utf-16-le"),
            "a.docx",
            DocumentEncrypted,
            "password",
        ),
        (OLE, "a.doc", UnsupportedDocument, "2007"),
        (zipped("xl/workbook.xml"), "a.xlsx", DocumentCorrupt, "spreadsheet is damaged"),
        (zipped("x"), "a.zip", UnsupportedDocument, "ZIP"),
        (zipped("docs/word/document.xml"), "a.zip", UnsupportedDocument, "ZIP"),
        (OLE + "WordDocument".encode("utf-16-le"), "a.doc", UnsupportedDocument, "Word file"),
        (OLE + "__substg1.0_".encode("utf-16-le"), "a.msg", UnsupportedDocument, "Outlook"),
        (b"\x1f\x8b\x08\0\0", "a.gz", UnsupportedDocument, "gzip"),
        (b"PK\x03\x04" + bytes(50), "a.docx", DocumentCorrupt, "end is missing"),
        (b"\x89PNG\r\n", "a.png", UnsupportedDocument, "PNG"),
        (bytes(range(256)) * 100, "a.bin", UnsupportedDocument, "binary"),
        (file("scanned.pdf"), "a.pdf", DocumentWithoutText, "2 pages are images"),
        (b"a" * (LONGEST_TEXT + 1), "a.txt", DocumentTooLarge, "characters"),
    ],
)
async def test_a_file_that_cannot_be_read_says_why(
    content: bytes, name: str, error: type[DocumentError], message: str
):
    with pytest.raises(error, match=message) as caught:
        await read(content, name)
    assert type(caught.value) is error


async def test_pages_without_text_are_reported():
    parsed = await read(file("half_scanned.pdf"))
    assert parsed.warnings == ["No text on 1 of 2 pages: 2."]


async def test_what_a_database_cannot_store_is_cleaned():
    parsed = await read(b'{"text": "a\\u0000b\\ud800c"}', "a.jsonl")
    assert parsed.text == "ab\ufffdc"


def test_a_file_is_looked_at_in_no_time_whatever_it_holds():
    for content in (
        b"<!---->" * 200_000,
        b"<!--" * 300_000,
        b"<!-- -->" * 100_000 + b"<html>",
        b"PK\x03\x04" + b"a" * 1_000_000 + b"xl/workbook.xml",
        b"{" * 1_000_000,
        b"#" * 1_000_000,
        b"a" * 2_000_000 + b"\xe9",
        b"[" * 1_000_000,
        b"From:\n" * 200_000,
    ):
        with contextlib.suppress(UnsupportedDocument, DocumentCorrupt):
            assert detect(content) in {"text", "html", "email"}


async def test_short_sentences_are_taken_together_and_too_many_records_are_refused():
    parsed = await Sandbox().parse(b"Yes! " * 100_000, "text")
    assert len(parsed.sentences) < 20_000
    with pytest.raises(DocumentTooLarge, match="records"):
        await Sandbox().parse(b"1\n" * (MOST_SECTIONS + 1), "jsonl")


async def test_a_file_that_takes_too_long_is_given_up():
    with pytest.raises(DocumentTooCostly, match=r"longer than 0\.01 seconds"):
        await Sandbox(seconds=0.01).parse(b"words", "text")


async def test_a_reading_that_is_cancelled_leaves_no_process():
    reading = asyncio.create_task(Sandbox().parse(b"<p>word</p>" * 500_000, "html"))
    assert await asyncio.to_thread(wait_for, children, 60)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert not children()


async def test_a_file_that_takes_too_much_memory_is_given_up():
    bomb = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(file("harbour.docx"))) as good,
        zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name in good.namelist():
            archive.writestr(name, good.read(name))
        archive.writestr("word/numbering.xml", b"<x>" + b"<x/>" * 4_000_000 + b"</x>")
    with pytest.raises(DocumentTooCostly, match="memory"):
        await Sandbox(megabytes=200).parse(bomb.getvalue(), "docx")


async def test_the_reading_process_knows_nothing_of_our_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("MEMSERVER_LLM_API_KEY", "secret")
    (tmp_path / "json.py").write_text("raise SystemExit('a module of the working folder')")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sentencex.py").write_text(
        "import os\n"
        "def get_sentence_boundaries(language, text):\n"
        "    return [{'start_index': len(os.environ)}]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    (tmp_path / "lib").mkdir()
    (tmp_path / "sentencex.py").rename(tmp_path / "lib" / "sentencex.py")
    parsed = await Sandbox().parse(b"words", "text")
    assert parsed.sentences == [2]
    assert "MEMSERVER_LLM_API_KEY" in os.environ
