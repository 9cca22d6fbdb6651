"""Tables of every kind become passages of whole rows that say what their columns are called."""

import csv
import io
import json
import zipfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from memserver.errors import DocumentCorrupt, DocumentError, DocumentTooCostly, DocumentTooLarge
from memserver.memory.parsing import building, containers
from memserver.memory.parsing.base import Parsed, SourceFile
from memserver.memory.parsing.detect import detect
from memserver.memory.parsing.parse import parse
from memserver.memory.parsing.sandbox import Sandbox
from memserver.testing.hashing_embedder import HashingEmbedder
from memserver.testing.scripted import Call, ScriptedModel, say
from tests.support.server import OneDatabase, serving

FILES = Path(__file__).parents[3] / "data" / "documents"
NAMES = ["Number", "Name", "Street"]


def read(content: bytes, name: str = "") -> Parsed:
    return parse(SourceFile(content, detect(content, name)))


def lines(parsed: Parsed) -> list[str]:
    return parsed.text.split("\n")


def people(count: int) -> list[list[str]]:
    return [[f"{n}", f"Person Number{n}", f"Harbour Street {n}"] for n in range(1, count + 1)]


def delimited(rows: Sequence[Sequence[str]], delimiter: str) -> bytes:
    file = io.StringIO()
    csv.writer(file, delimiter=delimiter).writerows(rows)
    return file.getvalue().encode()


def markdown(rows: Sequence[Sequence[str]]) -> bytes:
    shown = ["| " + " | ".join(row) + " |" for row in rows]
    table = [shown[0], "|---" * len(rows[0]) + "|", *shown[1:]]
    return "\n".join(["# People", "", *table, "", "That was all."]).encode()


def html(rows: Sequence[Sequence[str]]) -> bytes:
    cells = ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
    table = "".join(f"<tr>{row}</tr>" for row in cells)
    return f"<html><body><h1>People</h1><table>{table}</table></body></html>".encode()


def objects(rows: Sequence[Sequence[str]]) -> bytes:
    return json.dumps([dict(zip(NAMES, row, strict=True)) for row in rows[1:]]).encode()


async def test_a_passage_of_any_table_has_whole_rows_and_the_names_of_the_columns(
    database: OneDatabase,
) -> None:
    rows = [NAMES, *people(90)]
    files = {
        "a.csv": delimited(rows, ";"),
        "a.tsv": delimited(rows, "\t"),
        "a.md": markdown(rows),
        "a.html": html(rows),
        "a.json": objects(rows),
    }
    embedder = HashingEmbedder()
    search = Call("archival_memory_search", {"query": "Number57", "request_heartbeat": True})
    model = ScriptedModel([search, say("Street 57.")] * len(files))
    async with serving(database, model, embedder=embedder, chunk_tokens=64) as server:
        found, results = [], []
        agents = [await server.create_agent() for _ in files]
        for agent, (name, content) in zip(agents, files.items(), strict=True):
            path = f"/v1/agents/{agent}/documents"
            await server.http.post(path, content=content, params={"name": name})
        await server.run_jobs()
        for agent in agents:
            page = await server.get(f"{agent}/archival/search", query="Number57", mode="text")
            found.append(page["items"][0])
            answer = await server.say(agent, "Where does Number57 live?")
            results.append(answer["messages"][0]["tool_call"]["result"])
    for name, passage in zip(files, found, strict=True):
        text, place = passage["text"], passage["metadata"]
        if name in {"a.md", "a.html"}:
            first, _, *shown = text.split("\n")
            assert first == "| Number | Name | Street |"
            assert "| 57 | Person Number57 | Harbour Street 57 |" in shown
            assert all(row.startswith("| ") and row.endswith(" |") for row in shown)
        else:
            shown = text.split("\n")
            row = "Number: 57 | Name: Person Number57 | Street: Harbour Street 57"
            assert row in shown
            assert all(row.startswith("Number: ") for row in shown)
        [tokens] = await embedder.count_tokens([text])
        assert tokens <= 64
        first, last = ("record", "record_end") if name == "a.json" else ("row", "row_end")
        number = 57 if name == "a.json" else 58  # the names are row 1
        assert place[first] <= number <= place[last]
        assert place[last] - place[first] < 10
        assert place.get("heading", "") == ("People" if name in {"a.md", "a.html"} else "")
    assert all(", rows " in result for result in [results[0], results[1], results[2], results[3]])


@pytest.mark.parametrize("name", ["catch.csv", "catch.ods", "catch.xlsx", "catch.xls"])
def test_the_same_table_is_read_from_every_program_that_wrote_it(name: str) -> None:
    parsed = read((FILES / name).read_bytes(), name)
    rows = [
        line.replace("1250,5", "1250.5").replace("2113,25", "2113.25") for line in lines(parsed)
    ]
    assert rows == [
        "Boat: Havørn | Skipper: Wilhelmina Vendelbo | Landed: 2024-03-05 | Catch in kg: 1250.5"
        " | Remark: two nets torn",
        "Boat: Silje | Skipper: Ansgar Lüders | Landed: 2024-03-06 | Catch in kg: 980",
        "Boat: Nordlys | Skipper: Zoë Quist | Landed: 2024-03-06 | Catch in kg: 2113.25"
        " | Remark: cod; mostly large",
        "Boat: Tern | Skipper: Ida Brekke | Landed: 2024-03-07 | Catch in kg: 77"
        " | Remark: engine trouble off the skerry",
    ]
    assert [section.row for section in parsed.sections] == [2, 3, 4, 5]
    assert {section.heading for section in parsed.sections} == {
        "" if name[-3:] == "csv" else "catch"
    }


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (b"a;b\n1,5;2\n", ["a: 1,5 | b: 2"]),
        (b"sep=|\na|b\n1|2\n", ["a: 1 | b: 2"]),
        (b'a,b\n"x, y","two\nlines"\n', ["a: x, y | b: two lines"]),
        (b"1,2\n3,4\n5,6\n", ["1 | 2", "3 | 4", "5 | 6"]),  # without names
        (b"Land,2023,2024\nNorway,5,6\n", ["Land: Norway | 2023: 5 | 2024: 6"]),
        (b"Catch of the week,,\n,,\nBoat,Fish,kg\nTern,cod,7\n", ["Catch of the week", "Boat: Tern | Fish: cod | kg: 7"]),
        (b"a,b\n1,,3\n", ["a: 1 | 3"]),  # a cell without a name
        (b"a,b\n", ["a | b"]),
        (b"a,b\n1,\n", ["a: 1"]),
        (b"one\ntwo\nthree\n", ["one", "two", "three"]),
        (b"a,a\n1,2\n", ["a | a", "1 | 2"]),
        ("Größe;Maß\nklein;3\n".encode("cp1252"), ["Größe: klein | Maß: 3"]),
    ],
)  # fmt: skip
def test_cells_are_read_as_they_are_meant(content: bytes, shown: list[str]) -> None:
    assert lines(read(content, "a.csv")) == shown


def test_a_quotation_mark_that_is_never_closed_swallows_nothing() -> None:
    content = b'a,b\n1,"2\n' + b"".join(b"%d,x\n" % n for n in range(100))
    parsed = read(content, "a.csv")
    assert len(lines(parsed)) == 101
    assert parsed.warnings == ["A quotation mark is never closed: all are read as characters."]


def test_a_row_that_is_longer_than_a_passage_is_cut_between_its_cells() -> None:
    names = [f"Measure {n}" for n in range(100)]
    content = delimited([names, [f"value {n}" for n in range(100)], ["x"] * 100], ",")
    parsed = read(content, "a.csv")
    starts = [*parsed.sentences, len(parsed.text)]
    cells = [parsed.text[a:b].strip(" |\n") for a, b in pairwise(starts)]
    assert cells[:2] == ["Measure 0: value 0", "Measure 1: value 1"]
    assert [section.border for section in parsed.sections] == [True, True]


def test_json_becomes_rows_and_texts_under_its_keys() -> None:
    value = {
        "station": "Farol",
        "boats": [{"name": "Tern", "crew": ["Ida", "Bo"]}, {"name": "Silje", "length": 12}],
        "logs": {"may": [{"title": "Storm", "text": "The bell rang. " * 20}]},
    }
    parsed = read(json.dumps(value).encode(), "a.json")
    starts = [*(section.start for section in parsed.sections), len(parsed.text)]
    shown = [parsed.text[a:b].strip() for a, b in pairwise(starts)]
    assert [(s.heading, s.record, text[:40]) for s, text in zip(parsed.sections, shown, strict=True)] == [
        ("", None, "station: Farol"),
        ("boats", 1, 'name: Tern | crew: ["Ida", "Bo"]'),
        ("boats", 2, "name: Silje | length: 12"),
        ("logs > may > Storm", 1, "title: Storm\ntext: The bell rang. The be"),
    ]  # fmt: skip


def test_json_with_a_fault_is_read_as_text_and_that_is_reported() -> None:
    parsed = read(b'{\n  // a comment\n  "a": 1}', "tsconfig.json")
    assert '"a": 1' in parsed.text
    assert "no valid JSON" in parsed.warnings[0]
    assert "line 2" in parsed.warnings[0]


def sheet(cells: str, **more: bytes) -> bytes:
    """The catch with other cells in its sheet."""
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(FILES / "catch.xlsx") as good,
        zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name in good.namelist():
            content = good.read(name)
            if name == "xl/worksheets/sheet1.xml":
                before, _, rest = content.decode().partition("<sheetData>")
                after = rest.partition("</sheetData>")[2]
                content = f"{before}<sheetData>{cells}</sheetData>{after}".encode()
            archive.writestr(name, more.get(name.rpartition("/")[2], content))
    return buffer.getvalue()


def broken_xls() -> bytes:
    content = (FILES / "catch.xls").read_bytes()
    return content[:512] + b"\xff" * 2000 + content[2512:]


def test_formulas_without_a_result_are_reported() -> None:
    cells = '<row r="1"><c r="A1"><v>5</v></c><c r="B1"><f>A1*2</f><v></v></c></row>'
    parsed = read(sheet(cells))
    assert parsed.text == "5"
    assert parsed.warnings[0].startswith("1 formulas have no stored result")


@pytest.mark.parametrize(
    ("content", "name", "error"),
    [
        (sheet('<row r="1"><c r="A1"><v>1</v></c></row><row r="1048576"><c r="XFD1048576"><v>1</v></c></row>'), "a.xlsx", DocumentTooCostly),
        (sheet("<row><c"), "a.xlsx", DocumentCorrupt),
        (broken_xls(), "a.xls", DocumentCorrupt),
    ],
    ids=["far corner", "broken", "cut"],
)  # fmt: skip
async def test_a_hostile_table_costs_a_bounded_amount(
    content: bytes, name: str, error: type[DocumentError]
) -> None:
    with pytest.raises(error) as caught:
        await Sandbox(megabytes=256).parse(content, detect(content, name))
    assert type(caught.value) is error
    assert "Traceback" not in caught.value.message


def test_more_rows_than_are_read_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "MOST_SECTIONS", 1000)
    with pytest.raises(DocumentTooLarge, match="1000 records, rows"):
        read(b"a,b\n" + b"1,2\n" * 1001, "a.csv")


def test_an_archive_that_unpacks_to_too_much_is_refused_before_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bomb = sheet("<row/>" * 100_000)
    assert len(bomb) < 20_000
    monkeypatch.setattr(containers, "_MOST_UNPACKED", 500_000)
    with pytest.raises(DocumentTooCostly, match="bytes of markup"):
        detect(bomb)


def test_an_entity_of_a_sheet_is_not_expanded(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("swordfish")
    strings: Any = (
        f'<?xml version="1.0"?><!DOCTYPE sst [<!ENTITY x SYSTEM "file://{secret}">]>'
        '<sst xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><si><t>a&x;b</t></si></sst>'
    ).encode()
    cells = '<row r="1"><c r="A1" t="s"><v>0</v></c><c r="B1"><v>7</v></c></row>'
    try:
        text = read(sheet(cells, **{"sharedStrings.xml": strings})).text
    except DocumentCorrupt as error:
        text = error.message
    assert "swordfish" not in text
