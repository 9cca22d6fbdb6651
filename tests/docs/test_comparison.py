"""docs/comparison.md: every claim about memserver names tests, and those exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.support.doc_blocks import REPOSITORY

PAGE = REPOSITORY / "docs" / "comparison.md"
TEST = re.compile(r"\[`(test_\w+)`\]\(\.\./(tests/[\w/]+\.py)\)")
SYSTEMS = ["memserver", "MemGPT", "Letta", "mem0", "Graphiti/Zep", "LangMem", "Hindsight"]
ANSWERS = {"Y", "p", "\N{EN DASH}", "c", "?"}


def tables() -> list[list[list[str]]]:
    """The page's tables: rows of cells, headings first."""
    found: list[list[list[str]]] = []
    inside = False
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("|") and not inside:
            found.append([])
        inside = line.startswith("|")
        if inside and not line.startswith("|---"):
            found[-1].append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def claims() -> dict[str, str]:
    """What memserver has, by feature."""
    return {row[0]: row[1] for row in tables()[0][1:]}


def evidence() -> dict[str, list[tuple[str, str]]]:
    """The tests of each feature: name and file."""
    return {row[0]: TEST.findall(row[1]) for row in tables()[-1][1:]}


@cache
def functions_in(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    return {each.name for each in tree.body if isinstance(each, functions)}


def test_every_row_has_an_answer_for_every_system():
    heading, *rows = tables()[0]
    assert heading == ["feature", *SYSTEMS]
    assert len(rows) == len(claims()) == 46
    for feature, *answers in rows:
        assert len(answers) == len(SYSTEMS), feature
        assert set(answers) <= ANSWERS, feature
    assert {"?", "c"}.isdisjoint(claims().values())


@pytest.mark.parametrize(("feature", "answer"), claims().items())
def test_what_memserver_has_stands_on_tests_and_what_it_has_not_on_none(feature: str, answer: str):
    assert bool(evidence().get(feature)) == (answer in {"Y", "p"})
    if answer == "p":
        [note] = [row[2] for row in tables()[-1] if row[0] == feature]
        assert note, "say which part"


def test_every_test_that_is_named_exists():
    named = [test for found in evidence().values() for test in found]
    assert len(named) == len(re.findall(r"`test_\w+`", PAGE.read_text(encoding="utf-8")))
    for name, file in named:
        assert name in functions_in(REPOSITORY / file), f"{file}::{name}"


def test_evidence_is_given_for_features_of_the_table_alone():
    assert set(evidence()) <= set(claims())
