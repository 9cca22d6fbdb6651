"""What an episode is worth: the share of its questions that were answered right.

As MSC is scored: the right answer must stand within the first 15 words (or as many as itself has), so that
pasting what a search found doesn't pay. What was never said must be admitted.
"""

import re
from collections.abc import Sequence

from memserver_evals.scoring.text import ANSWER_WORDS, contains, count_words, first_words, normalise
from sweet_rl.memory_episodes.records import Asked, Outcome

_ADMITS = re.compile(
    r"\b(cant|cannot|can not|couldnt|could not) (find|remember|recall|see|tell|say)\b"
    r"|\b(dont|do not|didnt|did not) (know|remember|recall|find|see|say|mention|tell)\b"
    r"|\b(never|havent|have not|hasnt|has not|not) (\w+ )?(said|say|told|tell|talked|spoken|mentioned|gave|given|come up|came up)\b"
    r"|\bno (idea|mention|record|memory)\b|\bnothing\b"
)


def outcome(asked: Asked, answer: str) -> Outcome:
    return Outcome(answer=answer, right=_is_right(asked, answer))


def reward(outcomes: Sequence[Outcome]) -> float:
    return sum(each.right for each in outcomes) / len(outcomes)


def admits(answer: str) -> bool:
    """Whether an answer begins with saying that it can't be known."""
    return bool(_ADMITS.search(normalise(first_words(answer, ANSWER_WORDS))))


def _is_right(asked: Asked, answer: str) -> bool:
    if asked.line is None:
        return admits(answer)
    most = max(ANSWER_WORDS, count_words(asked.answer))
    return contains(first_words(answer, most), [asked.answer])
