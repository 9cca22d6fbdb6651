"""A small real file of each kind: found by a sentence of it, at the right place. It writes the docs' table.

After a change, with WRITE_DOCS=1 in the environment, it writes the table again.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memserver.testing.scripted import ScriptedModel
from tests.support.server import OneDatabase, serving

FILES = Path(__file__).parents[2] / "data" / "documents"
PAGE = Path(__file__).parents[3] / "docs" / "documents.md"
BEGIN, END = "<!-- kinds:begin -->\n", "<!-- kinds:end -->"
GEESE = "feeds nine geese behind the tower"
BREKKE = "skipper Ida Brekke engine trouble"
FEE = "Schooner Zoë Quist 40 coins"
KEEPER = {"heading": "The cape > The keeper"}
FEES = {"heading": "The harbour > Fees"}


@dataclass(frozen=True)
class Case:
    file: str
    kind: str
    made_by: str
    query: str
    place: dict[str, Any]  # that the passage must have
    text: str = ""  # that it must hold; the query, if empty


CASES = [
    Case("book.docx", "docx", "pandoc", GEESE, KEEPER),
    Case("book.odt", "odt", "pandoc", GEESE, KEEPER),
    Case("book.rtf", "rtf", "LibreOffice", GEESE, KEEPER),
    Case("book.epub", "epub", "pandoc", GEESE, {**KEEPER, "author": "Zoë Quist"}),
    Case("book.html", "html", "pandoc", FEE, {"heading": "The harbour > Fees", "row_end": 4}, "| Schooner | Zoë Quist | 40 coins |"),
    Case("book.md", "markdown", "by hand", GEESE, {**KEEPER, "author": "Zoë Quist"}),
    Case("book.ipynb", "notebook", "pandoc", GEESE.replace("every evening", ""), KEEPER),
    Case("talk.pptx", "pptx", "pandoc", "show the old lamp", {"page": 2, "heading": "Where it stands"}),
    Case("talk.odp", "odp", "LibreOffice", FEE, {"page": 3, "heading": "Fees of the harbour", "row_end": 4}, "| Schooner | Zoë Quist | 40 coins |"),
    Case("two_pages.pdf", "pdf", "ReportLab", "white roses behind the tower", {"page": 1, "page_end": 2}, "white roses"),
    Case("catch.csv", "csv", "by hand", BREKKE, {"row": 2, "row_end": 5}, "Skipper: Ida Brekke"),
    Case("catch.xlsx", "xlsx", "LibreOffice", BREKKE, {"heading": "catch", "row_end": 5}, "Skipper: Ida Brekke"),
    Case("catch.xls", "xls", "LibreOffice", BREKKE, {"heading": "catch", "row_end": 5}, "Skipper: Ida Brekke"),
    Case("catch.ods", "ods", "LibreOffice", BREKKE, {"heading": "catch", "row_end": 5}, "Skipper: Ida Brekke"),
    Case("catch.json", "json", "Python", "boat Tern skipper Ida Brekke", {"heading": "catch", "record": 1}, "skipper: Ida Brekke"),
    Case("forward.eml", "email", "mutt", "die vierte Glocke läutet nur bei Nebel", {"heading": "Fwd: Glocken"}),
    Case("forward.eml", "email", "mutt", "der Schlüssel des Leuchtturms liegt", {"heading": "Fwd: Glocken > Schlüssel für den Leuchtturm"}),
    Case("forward.eml", "email", "mutt", BREKKE, {"row_end": 5}, "Skipper: Ida Brekke"),
    Case("bells.py", "code", "by hand", "fourth bell rings in fog", {"heading": "class FogBell"}),
]  # fmt: skip


async def test_a_real_file_of_each_kind_is_found_by_a_sentence_of_it_at_its_place(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel()) as server:
        agent = await server.create_agent()
        documents = {}
        for name in {case.file for case in CASES}:
            content = (FILES / name).read_bytes()
            answer = await server.http.post(
                f"/v1/agents/{agent}/documents", content=content, params={"name": name}
            )
            assert answer.status_code == 202, (name, answer.text)
            documents[name] = answer.json()["id"]
        await server.run_jobs()
        rows = []
        for case in CASES:
            document = (await server.http.get(f"/v1/documents/{documents[case.file]}")).json()
            assert (document["state"], document["kind"]) == ("done", case.kind), document
            assert document["warnings"] == []
            found = await server.get(
                f"{agent}/archival/search",
                query=case.query,
                metadata=f'{{"document": "{document["id"]}"}}',
            )
            best = found["items"][0]
            assert (case.text or case.query) in " ".join(best["text"].split()), (case.file, best)
            assert best["metadata"].items() >= case.place.items(), (case.file, best["metadata"])
            rows.append(_row(case, best["metadata"]))
    _compare("\n".join(dict.fromkeys(rows)))


def _row(case: Case, place: dict[str, Any]) -> str:
    parts = []
    for name in ("page", "heading", "row", "record"):
        if name in place:
            last = place.get(f"{name}_end")
            parts.append(f"{name} {place[name]}" + (f" to {last}" if last else ""))
    return f"| {case.file} | {case.kind} | {case.made_by} | {case.query} | {', '.join(parts)} |"


def _compare(rows: str) -> None:
    head = "| file | kind | made by | asked for | found at |\n|---|---|---|---|---|\n"
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    table, end, after = rest.partition(END)
    if os.environ.get("WRITE_DOCS"):
        PAGE.write_text(before + BEGIN + head + rows + "\n" + end + after)
    else:
        assert table == head + rows + "\n", "the table in docs/documents.md is out of date"
