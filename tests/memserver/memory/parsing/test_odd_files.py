"""What programs write and few tests have: cells that span rows, tables in cells, notes, failures, Outlook's wrapping."""

import io
import json
import zipfile
from email.message import EmailMessage
from pathlib import Path

import pytest

from memserver.memory.parsing import html_tables
from memserver.memory.parsing.base import Parsed, SourceFile
from memserver.memory.parsing.detect import detect
from memserver.memory.parsing.parse import parse

DOCX = Path(__file__).parents[3] / "data" / "documents" / "harbour.docx"
W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
COMMENTS = "application/vnd.openxmlformats-officedocument.wordprocessingml.comments+xml"
RELATION = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/comments"


def read(content: bytes, name: str) -> Parsed:
    return parse(SourceFile(content, detect(content, name)))


def html(body: str) -> str:
    return read(f"<html><body><p>Fruit:</p>{body}</body></html>".encode(), "a.html").text


SPANNED = """| Fruit | Sort | Price |
| --- | --- | --- |
| Kiwi | green | 4 |
| Kiwi | gold | 5 |
| Fig | | 6 |
| Fig |  | 7 |"""


def test_a_cell_that_spans_rows_stands_in_each_of_them() -> None:
    text = html(
        "<table><tr><th>Fruit<th>Sort<th>Price</tr><tr><td rowspan=2>Kiwi<td>green<td>4</tr>"
        "<tr><td>gold<td>5</tr><tr><td rowspan=2 colspan=2>Fig<td>6</tr><tr><td>7</tr></table>"
    )
    assert SPANNED in text


def test_a_table_in_a_cell_is_text_of_the_cell_and_one_that_only_lays_out_is_none() -> None:
    inner = "<table><tr><td>green<td>4</tr><tr><td>gold<td>5</tr></table>"
    text = html(f"<table><tr><td>Fruit<td>Sorts</tr><tr><td>Kiwi<td>{inner}</tr></table>")
    assert text.endswith("| Fruit | Sorts |\n| --- | --- |\n| Kiwi | green, 4; gold, 5 |")
    wrapped = f"<table><tr><td><h2>Kiwis</h2>{inner}<p>Eat.</p></td></tr></table>"
    assert html(wrapped).endswith("## Kiwis\n\n| green | 4 |\n| --- | --- |\n| gold | 5 |\n\nEat.")


def test_cells_are_repeated_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html_tables, "_MOST_COPIES", 100)
    spans = "<td rowspan=99999>x</td>" * 50
    text = html(f"<table><tr>{spans}</tr>{'<tr></tr>' * 30}</table>")
    assert 50 < text.count("x |") <= 150


def test_what_a_summary_hides_is_a_paragraph_of_its_own() -> None:
    assert "More\n\nAn ibex." in html("<details><summary>More</summary>An ibex.</details>")


def test_a_word_documents_comments_are_read_and_formulas_are_reported() -> None:
    with zipfile.ZipFile(DOCX) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts["[Content_Types].xml"] = parts["[Content_Types].xml"].replace(
        b"</Types>",
        f'<Override PartName="/word/comments.xml" ContentType="{COMMENTS}"/></Types>'.encode(),
    )
    parts["word/_rels/document.xml.rels"] = parts["word/_rels/document.xml.rels"].replace(
        b"</Relationships>",
        f'<Relationship Id="c" Type="{RELATION}" Target="comments.xml"/></Relationships>'.encode(),
    )
    parts["word/document.xml"] = parts["word/document.xml"].replace(
        b"</w:p>",
        b'<w:r><w:commentReference w:id="0"/></w:r><m:oMath xmlns:m="http://schemas.openxmlformats.org/'
        b'officeDocument/2006/math"><m:r><m:t>E</m:t></m:r></m:oMath></w:p>',
        1,
    )
    parts["word/comments.xml"] = (
        f'<w:comments {W}><w:comment w:id="0" w:author="Ida"><w:p><w:r><w:t>Two lamps!</w:t></w:r></w:p>'
        "</w:comment></w:comments>"
    ).encode()
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    parsed = read(file.getvalue(), "a.docx")
    assert "Two lamps!" in parsed.text
    assert list(parsed.warnings) == ["Formulas were left out."]


def test_what_a_notebooks_code_failed_with_is_read_and_its_pictures_are_counted() -> None:
    outputs = [
        {"output_type": "error", "ename": "ValueError", "evalue": "no wren", "traceback": []},
        {"output_type": "display_data", "data": {"image/png": "eA==", "text/plain": "<Figure>"}},
    ]
    cells = [{"cell_type": "code", "source": ["look()"], "outputs": outputs, "metadata": {}}]
    notebook = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}
    parsed = read(json.dumps(notebook).encode(), "a.ipynb")
    assert "```\nValueError: no wren\n```" in parsed.text
    assert list(parsed.warnings) == ["Pictures that the code drew were left out: 1."]


def test_outlooks_wrapping_is_reported_and_is_no_text() -> None:
    mail = EmailMessage()
    mail["Subject"] = "Bells"
    mail.set_content("Four bells.")
    wrapping = bytes.fromhex("789f3e220100069008000400")
    mail.add_attachment(wrapping, maintype="application", subtype="ms-tnef", filename="winmail.dat")
    parsed = read(mail.as_bytes(), "a.eml")
    assert parsed.text == "Subject: Bells\n\nFour bells."
    assert list(parsed.warnings) == [
        "The attachment 'winmail.dat' was left out: This is Outlook's winmail.dat."
    ]


def test_what_a_mailbox_puts_before_a_line_that_begins_with_from_is_taken_away() -> None:
    box = b"From a Mon\nSubject: Sea\n\n>From the sea came slate.\n>>From afar.\n> From her.\n"
    text = read(box, "a.mbox").text
    assert text.endswith("\n\nFrom the sea came slate.\n>From afar.\n> From her.")
