"""The audit finds what is wrong; `python -m tests.chaos` makes the faults."""

from collections import Counter

from tests.chaos.audit import Audit, Stored, audit
from tests.chaos.load import Said

TURN = 1000


def said(text: str, answer: str | None = None) -> Said:
    return Said("ada", text, answer=answer or f"echo: {text}")


def stored(*texts: str, delivered: int = 1, state: str = "done") -> Stored:
    messages = [
        message
        for turn, text in enumerate(texts, 1)
        for message in (
            ("ada", turn * TURN, "user", text),
            ("ada", turn * TURN + 1, "assistant", f"echo: {text}"),
        )
    ]
    turns = [("ada", turn, state, 1, None) for turn, _ in enumerate(texts, 1)]
    return Stored(messages, turns, Counter(dict.fromkeys(texts, delivered)))


def test_what_is_stored_and_answered_once_is_well() -> None:
    assert audit([said("one"), said("two")], stored("one", "two")) == Audit((), (), ())


def test_an_answered_message_that_is_not_stored_is_lost() -> None:
    found = audit([said("one"), said("two")], stored("one"))
    assert found == Audit(("two: stored 0, answered 0 times",), (), ())


def test_an_answer_to_another_message_is_a_loss() -> None:
    found = audit([said("one", "echo: two")], stored("one"))
    assert found == Audit(("one: answered 'echo: two'",), (), ())


def test_a_gap_in_the_positions_is_a_loss() -> None:
    whole = stored("one")
    gap = Stored(
        [whole.messages[0], ("ada", TURN + 2, "assistant", "echo: one")], whole.turns, Counter()
    )
    assert audit([said("one")], gap).lost == ("turn 1 of ada has the places [0, 2]",)


def test_a_gap_in_the_turns_is_a_loss() -> None:
    whole = stored("one", "two")
    assert audit([], Stored(whole.messages[2:], whole.turns[1:], Counter())).lost == (
        "ada has gaps in its turns",
    )


def test_what_is_stored_answered_or_delivered_twice_is_found() -> None:
    assert audit([said("one")], stored("one", "one")).twice == ("one: 2 times",)
    assert audit([said("one")], stored("one", delivered=2)).twice == ("one: 2 times",)


def test_a_message_without_an_answer_and_a_turn_without_an_end_are_stuck() -> None:
    found = audit(
        [Said("ada", "one", tries=3, refusal="ConnectError")], stored("one", state="failed")
    )
    assert found.stuck == (
        "one: no answer after 3 tries; ConnectError",
        "turn 1 of ada is failed after 1 attempts: None",
    )
