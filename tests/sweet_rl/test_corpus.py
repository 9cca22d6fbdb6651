"""The corpus of the warm start: that it is what its card says, and that broken files are refused."""

from pathlib import Path

import pytest

from sweet_rl.warm_start.corpus import (
    CORPUS,
    CorpusError,
    asides,
    conversations,
    passages,
    read_conversation,
)
from sweet_rl.warm_start.corpus_check import common_phrases, faults, faults_of_aside, main

GOOD = """topic: tea
user: Ann Bo
assistant: Cy Dee

== 2025-01-02 09:00
user: I drink black tea with my brother Jo every single morning.
note: Brother: Jo
assistant: I drink mine green, from a cup that cost two pounds.
== questions
? What did your cup cost?
= two pounds
> I drink mine green, from a cup that cost two pounds.
"""


def test_every_file_of_the_corpus_is_without_faults(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0, capsys.readouterr().out


def test_topics_and_people_of_the_sides_have_nothing_in_common() -> None:
    sides: dict[str, set[str]] = {}
    people: set[str] = set()
    for talk in conversations():
        sides.setdefault(talk.topic, set()).add(talk.side)
        assert not {talk.user, talk.assistant} & people
        people |= {talk.user, talk.assistant}
    assert all(len(found) == 1 for found in sides.values())
    assert len(sides) >= 60
    assert {talk.side for talk in conversations()} == {"train", "validation", "test"}
    assert {passage.side for passage in passages()} == {"train", "validation", "test"}


def test_a_phrase_in_too_many_conversations_is_reported(tmp_path: Path) -> None:
    talks = []
    for number in range(4):
        path = tmp_path / f"talk_{number}.txt"
        path.write_text(GOOD)
        talks.append(read_conversation(path))
    assert not common_phrases(talks[:3])
    assert any("black tea with my brother" in phrase for phrase, _ in common_phrases(talks))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("> I drink mine green", "> I drink mine red", "exactly one text"),
        ("= two pounds", "= three pounds", "must stand in the sentence"),
        ("== 2025-01-02 09:00", "== soon", "is no time"),
        ("topic: tea", "theme: tea", "topic was expected"),
        ("assistant: I drink", "I drink", "a line is KEY: VALUE"),
        ("> I drink mine green, from a cup that cost two pounds.", "", "needs its sentence"),
        ("note: Brother: Jo\n", "", ""),
    ],
)
def test_a_file_that_breaks_the_format_is_refused_with_its_line(
    tmp_path: Path, old: str, new: str, why: str
) -> None:
    path = tmp_path / "talk.txt"
    path.write_text(GOOD.replace(old, new))
    if not why:
        assert [turn.notes for turn in read_conversation(path).turns] == [(), ()]
        return
    with pytest.raises(CorpusError, match=f"talk.txt, about line .*{why}"):
        read_conversation(path)


def test_a_change_of_a_note_that_was_never_taken_is_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "talk.txt"
    path.write_text(GOOD.replace("note: Brother: Jo", "note: Brother: Al -> Brother: Jo"))
    assert any("isn't there: Brother: Al" in fault for fault in faults(read_conversation(path)))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("assistant: agent", "assistant: Lorna Oduya", "not agent"),
        ("assistant: {reply}\n", "", "needs an answer"),
        ("? {question}", "? Was it {answer} or not", "it holds its answer"),
        ("note: {note}", "note: Had soup for supper", "no note of what the user said"),
    ],
)
def test_an_aside_that_breaks_its_rules_is_reported(
    tmp_path: Path, old: str, new: str, why: str
) -> None:
    aside = asides()[0]
    asked = aside.questions[0]
    parts = {
        "reply": aside.turns[1].text,
        "note": aside.turns[0].notes[0],
        "question": asked.text,
        "answer": asked.answer,
    }
    text = (CORPUS / "asides" / f"{aside.name}.txt").read_text()
    path = tmp_path / "aside.txt"
    path.write_text(text.replace(old.format(**parts), new.format(**parts), 1))
    assert list(faults_of_aside(aside)) == []
    assert why in " ".join(faults_of_aside(read_conversation(path)))


def test_the_data_card_says_where_the_corpus_is_from() -> None:
    card = (CORPUS / "README.md").read_text()
    assert "Apache-2.0" in card
    assert "unanswerable" in card
