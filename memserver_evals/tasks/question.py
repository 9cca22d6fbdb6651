"""What tasks have in common that ask one question after some history: examples, and how one is played."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from typing_extensions import override

from memserver_evals.scoring.text import ANSWER_WORDS, contains, count_words, first_words
from memserver_evals.task import Claim, Groups, Material, Played, Scores, System, ask
from memserver_evals.tasks.registry import ReadTask

WORDS_OPTION = {"answer_words": f"so many words of an answer count ({ANSWER_WORDS})"}
STEP = timedelta(minutes=1)
"""Between two utterances of a session, whose data says only when it began."""


@dataclass(frozen=True, slots=True)
class Question:
    id: str  # unique in the task
    material: Material  # the history
    question: str  # what is asked
    golds: tuple[str, ...]  # any of them is right
    at: datetime | None = None  # when it is asked
    kind: str = ""  # the judge's rule
    groups: Groups = field(default_factory=dict)  # where it belongs in tables
    evidence: frozenset[str] = frozenset()  # ids of the utterances or documents with the answer
    # other strings whose containment is as good: the rare word of the right answer, say
    extra_golds: tuple[str, ...] = ()
    abstain: bool = False  # saying that it can't be known is right

    @property
    def answers(self) -> tuple[str, ...]:
        return self.golds


class QuestionTask(ReadTask[Question]):
    """A task of such questions; what is its own is its names and its scores."""

    main_score = "containment"

    def __init__(
        self, examples: Sequence[Question], data_hash: str, answer_words: int = ANSWER_WORDS
    ) -> None:
        super().__init__(examples, data_hash)
        self._answer_words = answer_words

    def counted(self, example: Question, played: Played) -> str:
        """The part of the answer that counts; where a right one is longer, as much as that has."""
        most = max(self._answer_words, *map(count_words, example.golds))
        return first_words(played.answer, most)

    @override
    def groups(self, example: Question) -> Groups:
        return example.groups

    @override
    async def play(self, example: Question, system: System) -> Played:
        return await ask(system, example.id, example.material, example.question, at=example.at)

    @override
    def score(self, example: Question, played: Played) -> Scores:
        golds = example.golds + example.extra_golds
        return {
            "containment": float(contains(self.counted(example, played), golds)),
            "containment_whole": float(contains(played.answer, golds)),
            "evidence_found": evidence_found(example.evidence, played),
        }

    def evidence(self, example: Question) -> frozenset[str]:
        return example.evidence

    @override
    def reward(self, example: Question, played: Played) -> float:
        return self.score(example, played)[self.main_score]

    @override
    def claim(self, example: Question, played: Played) -> Claim | None:
        answer = self.counted(example, played)
        return Claim(example.question, example.golds, answer, example.kind)


def evidence_found(evidence: frozenset[str], played: Played, first: int | None = None) -> float:
    """The share of the evidence among what was retrieved (the first so many of it).

    nan where the data names no evidence, and where the system doesn't retrieve. One that could have searched
    and didn't has found nothing.
    """
    replies = [turn.reply for turn in played.turns]
    found = [each.id for reply in replies for each in reply.found]
    could = any(reply.searches is not None for reply in replies)
    if not evidence or not (found or could):
        return math.nan
    return len(evidence & set(found[:first])) / len(evidence)


def data_hash(paths: Sequence[Path], *choices: object) -> str:
    """A hash of files and of the options that decide what the examples are."""
    digest = hashlib.sha256(repr(choices).encode())
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
