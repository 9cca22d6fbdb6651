"""Pairs of collaborations and of turns: what is chosen, what is rejected, and what is left out."""

import pytest

from sweet_rl.pairs import PairRule, in_tasks, successes, trajectory_pairs, turn_pairs
from sweet_rl.trajectories import Ranked
from tests.sweet_rl.conversations import chat, played

PLAYED = [
    played("a", 0, 0.5, "I want a.", "x"),
    played("a", 1, 1, "I want a.", "Which?", "7", "x > 7"),
    played("b", 0, 0.9, "I want b.", "y"),
    played("a", 2, 1, "I want a.", "x > 7"),
    played("a", 3, 0, "I want a.", "Why?", "So.", "z"),
    played("c", 0, 1, "I want c.", "c"),
]


def ranked(count: int = 16, **values: object) -> Ranked:
    return Ranked(
        task="a",
        hidden="code",
        turn=1,
        messages=chat("I want a.", "Which?", "7"),
        candidates=tuple(f"text {number}" for number in range(count)),
        advantages=tuple(float(number) for number in range(count)),
    ).model_copy(update=values)


def number_of(text: str) -> int:
    return int(text.removeprefix("text "))


def test_a_success_is_chosen_over_every_play_of_its_task_that_earned_less() -> None:
    pairs = trajectory_pairs(PLAYED)
    assert [pair.task for pair in pairs] == ["a", "a"]
    assert all(pair.prompt == PLAYED[0].messages[:2] for pair in pairs)
    assert all(pair.chosen == PLAYED[1].messages[2:] for pair in pairs)
    assert [pair.rejected for pair in pairs] == [PLAYED[0].messages[2:], PLAYED[4].messages[2:]]
    assert pairs[0].hidden == PLAYED[0].hidden


def test_every_success_can_be_paired() -> None:
    chosen = [pair.chosen for pair in trajectory_pairs(PLAYED, every_success=True)]
    assert chosen == [PLAYED[1].messages[2:]] * 2 + [PLAYED[3].messages[2:]] * 2


def test_the_pairs_of_a_task_can_be_learnt_one_after_another() -> None:
    pairs = trajectory_pairs([*PLAYED, played("b", 1, 1, "I want b.", "x")], every_success=True)
    mixed = in_tasks([pairs[0], pairs[4], pairs[1]])
    assert [pair.task for pair in mixed] in (["a", "a", "b"], ["b", "a", "a"])
    assert [pair for pair in mixed if pair.task == "a"] == pairs[:2], "in their order"


def test_rejection_fine_tuning_learns_what_passed_all_tests() -> None:
    assert [one.key for one in successes(PLAYED)] == [("a", 1), ("a", 2), ("c", 0)]


def test_turns_of_the_better_half_are_chosen_over_those_of_the_worse() -> None:
    pairs = turn_pairs([ranked()], PairRule(count=40))
    assert len(pairs) == 40
    assert len({(pair.chosen, pair.rejected) for pair in map(_texts, pairs)}) == 40
    for pair in pairs:
        assert number_of(pair.chosen[0]["content"]) >= 8 > number_of(pair.rejected[0]["content"])
        assert pair.prompt == ranked().messages


def test_the_middle_one_of_an_odd_number_is_in_neither_half() -> None:
    texts = {
        text["content"]
        for pair in turn_pairs([ranked(5)], PairRule(count=9))
        for text in (*pair.chosen, *pair.rejected)
    }
    assert texts == {"text 0", "text 1", "text 3", "text 4"}


def test_draws_depend_on_the_seed_and_the_state_alone() -> None:
    first, other = ranked(), ranked(turn=0)
    assert turn_pairs([first, other], PairRule()) == [
        *turn_pairs([first], PairRule()),
        *turn_pairs([other], PairRule()),
    ]
    assert turn_pairs([first], PairRule()) != turn_pairs([first], PairRule(), seed=1)


def test_equal_texts_and_equal_advantages_make_no_pair() -> None:
    assert turn_pairs([ranked(4, candidates=("x", "x", "x", "x"))], PairRule()) == []
    assert turn_pairs([ranked(4, advantages=(1.0, 1.0, 1.0, 1.0))], PairRule()) == []
    assert len(turn_pairs([ranked(4, candidates=("x", "x", "y", "y"))], PairRule())) == 1


def test_a_margin_leaves_out_messages_that_are_about_equally_good() -> None:
    scores = (1.0, 0.9, 0.8, 0.1, 0.0, 0.0)  # their standard deviation is .44
    state = ranked(6, advantages=scores)
    apart = [
        tuple(number_of(said[0]["content"]) for said in (pair.chosen, pair.rejected))
        for pair in turn_pairs([state], PairRule(count=40, margin=1.9))
    ]
    assert sorted(apart) == [(0, 3), (0, 4), (0, 5), (1, 4), (1, 5)]
    assert len(turn_pairs([state], PairRule(count=40))) == 9
    assert turn_pairs([state], PairRule(count=40, margin=3)) == []


def test_chosen_messages_can_be_drawn_from_fewer_than_the_better_half() -> None:
    chosen = {
        number_of(pair.chosen[0]["content"])
        for pair in turn_pairs([ranked()], PairRule(count=200, top=0.25))
    }
    rejected = {
        number_of(pair.rejected[0]["content"])
        for pair in turn_pairs([ranked()], PairRule(count=200, top=0.25))
    }
    assert chosen == {12, 13, 14, 15}
    assert rejected == set(range(8)), "those stay the worse half"
    few = turn_pairs([ranked(5)], PairRule(count=9, top=0.1))
    assert {pair.chosen[0]["content"] for pair in few} == {"text 4"}, "one at least"


def test_pairs_by_index_are_drawn_with_replacement_as_released() -> None:
    pairs = turn_pairs([ranked(4)], PairRule(count=40, by_index=True))
    drawn = [tuple(number_of(said[0]["content"]) for said in (p.chosen, p.rejected)) for p in pairs]
    assert len(drawn) == 40
    assert set(drawn) == {(3, 1), (3, 0), (2, 1), (2, 0)}, "each of the four came several times"
    same = ranked(4, candidates=("x", "x", "x", "x"), advantages=(1.0, 1.0, 1.0, 1.0))
    assert len(turn_pairs([same], PairRule(by_index=True))) == 4


@pytest.mark.parametrize("by_index", [False, True])
def test_an_absolute_margin_takes_no_pairs_from_a_state_in_which_all_is_hopeless(
    by_index: bool,
) -> None:
    hopeless, telling = ranked(4, advantages=(0.02, 0.01, 0.0, 0.0)), ranked(4, turn=0)
    rule = PairRule(count=9, absolute_margin=0.5, by_index=by_index)
    assert turn_pairs([hopeless], rule) == []
    assert len(turn_pairs([telling], rule)) == (9 if by_index else 4)
    assert turn_pairs([hopeless], PairRule(margin=1.0, by_index=by_index)), "by deviations it does"


class _Texts:
    def __init__(self, pair) -> None:
        self.chosen = pair.chosen[0]["content"]
        self.rejected = pair.rejected[0]["content"]


def _texts(pair) -> _Texts:
    return _Texts(pair)
