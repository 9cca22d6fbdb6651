"""The part of a text that a query matched, and how it is shown."""
# ruff: noqa: RUF001 - letters of other scripts that look alike

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as some

from memserver.memory.excerpt import Matched, Query

FILLING = "We spoke of boats and of the weather. " * 40


def excerpt(text: str, query: str, characters: int, part: slice | None = None, **how: bool) -> str:
    return Matched(text, Query(query), part, **how).excerpt(characters)


@pytest.mark.parametrize(
    ("text", "query", "shown"),
    [
        ("The zinc compass is in drawer nine.", "zinc compass", "The **zinc compass** is"),
        ("The Zinc COMPASS is in drawer nine.", "zinc compass", "The **Zinc COMPASS** is"),
        ("A compass of zinc lies in drawer nine.", "the zinc compasses", "A **compass** of **zinc** lies"),
        ("She markets what she marketed.", "marketing", "She **markets** what she **marketed**."),
        ("Die Häuser der Straße sind alt.", "haus strasse", "Die **Häuser** der **Straße** sind"),
        ("Mu\u0308nchen liegt im Süden.", "München", "**Mu\u0308nchen** liegt"),
        ("M\u00fcnchen liegt im Süden.", "munchen", "**M\u00fcnchen** liegt"),
        ("İstanbul'da yaşıyor, ışık az.", "istanbul isik", "**İstanbul**'da yaşıyor, **ışık** az."),
        ("Пишу о цинковом компасе.", "цинковый компас", "Пишу о **цинковом компасе**."),
        ("كتبت اَلْكِتَاب أمس.", "الكتاب", "كتبت **اَلْكِتَاب** أمس."),
        ("昨天我和妹妹去西湖玩了一整天。", "西湖在哪里", "去**西湖**玩"),
        ("東京タワーへ行きました。", "東京 ﾀﾜｰ", "**東京タワー**へ"),
        ("경복궁에 갔습니다.", "경복궁은 어디", "**경복궁**에"),
        ("\u1100\u1167\u11bc\u1107\u1169\u11a8\u1100\u116e\u11bc에", "경복궁", "**\u1100\u1167"),
        ("เมื่อวานเราไปเชียงใหม่กัน", "เชียงใหม่", "เราไป**เชียงใหม่**กัน"),
        ("हमने किताबें पढ़ीं।", "किताबें", "हमने **किताबें** पढ़ीं।"),
        ("One\n\n two\tzinc  there", "zinc", "One two\t**zinc**  there"),
    ],
)  # fmt: skip
def test_what_matched_is_marked_in_any_script_case_and_form(
    text: str, query: str, shown: str
) -> None:
    long = f"{FILLING}{text} {FILLING}"
    for characters in (100, 400, 10_000):
        assert shown in excerpt(long, query, characters)


def test_the_window_is_where_the_rarest_words_of_the_query_stand() -> None:
    text = f"{FILLING}A boat of zinc sank. {FILLING}The weather in May. {FILLING}"
    shown = excerpt(text, "which boats and what weather had zinc", 120)
    assert "A **boat** of **zinc** sank." in shown
    assert (shown[0], shown[-1]) == ("…", "…")
    assert 80 < len(shown.replace("**", "")) <= 120


def test_words_that_stand_far_apart_have_windows_of_their_own() -> None:
    text = f"Alpha is here. {FILLING}Bravo is there. {FILLING}Charlie is nowhere."
    shown = excerpt(text, "alpha bravo charlie", 500)
    assert shown.startswith("**Alpha** is here.")
    assert " … " in shown
    assert "**Bravo** is there." in shown
    assert shown.endswith("**Charlie** is nowhere.")
    assert len(shown.replace("**", "")) <= 510


def test_what_was_found_by_its_meaning_is_shown() -> None:
    fact = "Her birthday cake had nine candles."
    text = f"{FILLING}{fact} {FILLING}A party of boats. {FILLING}"
    part = slice(len(FILLING), len(FILLING) + len(fact))
    assert fact in excerpt(text, "party", 150, part)
    assert "A **party** of boats." not in excerpt(text, "party", 150, part)
    both = excerpt(text, "party", 300, part, by_part=False)
    assert fact in both
    assert "A **party** of boats." in both
    head = excerpt(text, "no such thing", 100)
    assert head == f"{text[: len(head) - 1]}…"
    assert 80 < len(head) <= 100


@given(
    some.text(max_size=300),
    some.text(max_size=60),
    some.integers(0, 200),
    some.none() | some.builds(slice, some.integers(0, 150), some.integers(150, 300)),
)
def test_nothing_is_changed_but_marks_gaps_and_line_breaks(
    text: str, query: str, characters: int, part: slice | None
) -> None:
    text, query = text.replace("*", "+").replace("…", "."), query.replace("*", "+")
    shown = excerpt(text, query, characters, part)
    left = " ".join(text.split())
    pieces = [" ".join(piece.split()) for piece in shown.replace("**", "").split("…")]
    for piece in filter(None, pieces):
        before, found, left = left.partition(piece)
        assert found
        assert not before or "…" in shown
    plain = shown.replace("**", "")
    assert len(text) <= characters or len(plain) <= max(characters, 1) + 6
    assert len(re.findall(r"\*\*", shown)) % 2 == 0


@given(
    some.text("aàÀßéİı가\u1100\u1161中あｶﾞﬁ \u0301.", max_size=60),
    some.integers(0, 59),
    some.integers(1, 20),
)
def test_any_piece_of_a_text_is_found_in_it(text: str, start: int, length: int) -> None:
    piece = text[start : start + length].strip()
    if piece and not unicodedata.combining(piece[0]):
        assert f"**{piece[0]}" in excerpt(text, piece, 1_000) or "**" in excerpt(text, piece, 1_000)


def test_words_are_not_looked_for_in_any_number_of_very_long_texts() -> None:
    text = "a" * 3_000_000 + " zinc compass. " + "The compass of zinc is here."
    query = Query("a compass of zinc was here")
    shown = [Matched(text, query).excerpt(100) for _ in range(3)]
    assert ["**" in each for each in shown] == [True, False, False]
    assert "**" in Matched(text[-60:], query).excerpt(100)
    assert "**zinc compass**" in Matched(text, Query("zinc compass")).excerpt(100)
