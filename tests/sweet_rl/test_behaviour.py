"""Why a policy fails: the kinds of messages, how collaborations end, and what a critic mistakes."""

from collections.abc import Sequence

from memserver_evals.colbench.backend.rules import MARKER
from sweet_rl.oracle import behaviour, judge, kind_of, mistakes, values_of
from sweet_rl.pairs import PairRule, turn_pairs
from sweet_rl.trajectories import Ranked, Trajectory
from tests.sweet_rl.conversations import chat
from tests.sweet_rl.oracle_tasks import answer, asked, one

TASK = one("tier")  # threshold, discount, fee; five messages
SLOTS = {TASK.example.id: TASK}
KNOWN = ("threshold", "discount", "fee")
WRONG = answer(TASK, fee=9999)


def played(reward: float, *said: str) -> Trajectory:
    talk = [TASK.example.description]
    for text in said:
        talk += [text, "Some value."]
    return Trajectory(
        task=TASK.example.id,
        hidden="",
        messages=chat(*talk[:-1]),
        answer="",
        passed=(),
        reward=reward,
    )


def test_a_message_is_named_by_what_is_known_before_it() -> None:
    kinds = [
        kind_of(TASK, asked(TASK, "threshold"), text)
        for text in ("What is the fee?", "What is the threshold?", "Nice weather?", answer(TASK))
    ]
    assert kinds == ["question", "repeated", "idle", "right"]
    assert kind_of(TASK, asked(TASK, "threshold"), WRONG) == "early"
    assert kind_of(TASK, asked(TASK, *KNOWN), WRONG) == "wrong"
    assert kind_of(TASK, asked(TASK), f"{MARKER} x") == "other code"
    assert kind_of(TASK, asked(TASK, *KNOWN, "hm"), "What else?") == "no answer"


def test_collaborations_are_counted_by_their_ends_and_their_lost_questions() -> None:
    ask = [f"What is the {name}?" for name in KNOWN]
    found = behaviour(
        [
            played(1, *ask, answer(TASK)),
            played(0.5, ask[0], "Why?", WRONG),
            played(0.2, ask[0], "Why?", ask[0], "Hm?", WRONG),
            played(0, *ask, WRONG),
            played(0, *ask, f"{MARKER} x"),
            played(0, *ask, "Why?", "Why not?"),
            played(0.9, *ask, answer(TASK)),
        ],
        SLOTS,
    )
    shares = {name: round(7 * value) for name, value in found.items()}
    assert shares == {
        "solved": 1,
        "early": 1,
        "guessed": 1,
        "wrong": 1,
        "other code": 2,  # one has the right constants, and yet its tests fail
        "no answer": 1,
        "repeated": 1,
        "idle": 4,
    }


def ranked(texts: Sequence[str], advantages: Sequence[float]) -> Ranked:
    before = asked(TASK, "threshold")
    return Ranked(
        task=TASK.example.id,
        hidden="",
        turn=1,
        messages=before,
        candidates=tuple(texts),
        advantages=tuple(advantages),
        oracle=values_of(TASK, before, texts),
    )


def test_a_critic_is_told_which_kinds_it_mistakes_and_how_good_its_pairs_are() -> None:
    texts = ("What is the fee?", "What is the discount?", "Nice weather?", "Oh?")
    record = ranked(texts, (3, 0, 2, 1))
    assert mistakes([record], SLOTS) == {"question over idle": {"pairs": 4, "right": 0.5}}
    good, bad = ranked(texts, (3, 2, 1, 0)), ranked(texts, (0, 1, 2, 3))
    assert judge(turn_pairs([good], PairRule(count=9)), SLOTS) == {
        "right": 1,
        "equal": 0,
        "inverted": 0,
    }
    assert judge(turn_pairs([bad], PairRule(count=9)), SLOTS) == {
        "right": 0,
        "equal": 0,
        "inverted": 1,
    }
    assert judge([], SLOTS) == {}
