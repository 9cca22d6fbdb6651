import pytest
from hypothesis import given
from hypothesis import strategies as st

from memserver.cli.chat.wrapping import Wrapping, harmless


def wrapped(*pieces: str, width: int = 10, column: int = 0) -> str:
    wrapping = Wrapping(width, column)
    return "".join(wrapping.feed(piece) for piece in pieces) + wrapping.flush()


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        (["one two ", "three"], "one two\nthree"),
        (["on", "e tw", "o thr", "ee"], "one two\nthree"),
        (["one\n\ntwo"], "one\n\ntwo"),
        (["a word-that-is-too-long here"], "a\nword-that-is-too-long\nhere"),
        (["  - item"], "  - item"),
        (["日本 語日本"], "日本\n語日本"),
    ],
)
def test_lines_break_between_words_however_the_text_comes(pieces, shown):
    assert wrapped(*pieces) == shown


def test_the_first_line_begins_after_the_speakers_name():
    assert wrapped("one two", column=4) == "one\ntwo"


@given(st.lists(st.text(alphabet="ab \n", max_size=12), max_size=8))
def test_no_word_is_lost(pieces: list[str]):
    assert wrapped(*pieces).split() == "".join(pieces).split()


def test_what_a_terminal_would_obey_is_left_out():
    assert harmless("a\x1b[2Jb\x07\x9b1mc\u202ed\te\nf\r\n") == "a[2Jb1mcd\te\nf\n"
