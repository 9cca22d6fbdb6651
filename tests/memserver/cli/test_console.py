"""Tables of the command line: whole, however wide the terminal is."""

import re

import pytest
from rich.console import Console

from memserver.cli import console

TITLES = ("name", "id", "state", "what to do")
ROWS = (
    ("chat app", "0198f1c2-7a3b-7c4d-8e5f-0123456789ab", "until 2027-01-31 10:00", "Nothing."),
    (
        "a/path/that/is/rather/long/and/has/no/spaces",
        "0198f1c2-7a3b-7c4d-8e5f-0123456789ac",
        "revoked",
        "Ask whoever runs the server to make another one, and put it into the settings.",
    ),
)


def printed(monkeypatch: pytest.MonkeyPatch, width: int) -> str:
    """What a terminal of this width shows."""
    shown = Console(highlight=False, soft_wrap=True, markup=False, force_terminal=True, width=width)
    monkeypatch.setattr(console, "console", shown)
    with shown.capture() as captured:
        console.print_table(TITLES, ROWS, sentences=("what to do",))
    return re.sub(r"\x1b\[[0-9;]*m", "", captured.get())


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_every_value_is_whole_at_any_width(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    text = printed(monkeypatch, width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    # A value may be broken over lines only where it is wider than they are, or a sentence.
    for row in ROWS:
        for value in row[:3]:
            assert value in text or len(value) > width - 12
        for word in row[3].split():
            assert word in text


def test_the_columns_stand_beside_each_other_where_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "│" not in printed(monkeypatch, 80)
    assert "│" in printed(monkeypatch, 160)


def test_a_pipe_gets_one_line_for_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_table(TITLES, ROWS, sentences=("what to do",))
    text = capsys.readouterr().out
    for row in ROWS:
        [line] = [line for line in text.splitlines() if row[1] in line]
        assert [cell.strip() for cell in line.strip("│").split("│")] == list(row)


def test_no_rows_are_a_sentence_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_table(TITLES, (), empty="There are no keys.")
    assert capsys.readouterr() == ("", "There are no keys.\n")
