"""What tasks have in common that ask one question after some history: examples, and how one is played."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from typing_extensions import override

from memserver.errors import InvalidInput
from memserver_evals.scoring.text import contains
from memserver_evals.task import Claim, Groups, Material, Played, Scores, System, ask
from memserver_evals.tasks.read_task import ReadTask
from memserver_evals.tasks.registry import TaskOptions

STEP = timedelta(minutes=1)
"""Between two utterances of a session, whose data says only when it began."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question after some history.

    Attributes:
        id: unique in the task.
        material: the history.
        question: what is asked.
        golds: any of them is right.
        at: when it is asked.
        kind: the judge's rule.
        groups: where it belongs in tables.
        evidence: ids of the utterances or documents with the answer.
        extra_golds: other strings whose containment is as good: the rare word of the right answer, say.
        abstain: saying that it can't be known is right.
    """

    id: str
    material: Material
    question: str
    golds: tuple[str, ...]
    at: datetime | None = None
    kind: str = ""
    groups: Groups = field(default_factory=dict)
    evidence: frozenset[str] = frozenset()
    extra_golds: tuple[str, ...] = ()
    abstain: bool = False

    @property
    def answers(self) -> tuple[str, ...]:
        """The right answers, as reports show them."""
        return self.golds


class QuestionTask(ReadTask[Question]):
    """A task of such questions; what is its own is its names and its scores."""

    main_score = "containment"

    @override
    def groups(self, example: Question) -> Groups:
        return example.groups

    @override
    async def play(self, example: Question, system: System) -> Played:
        return await ask(system, example.id, example.material, example.question, at=example.at)

    @override
    def score(self, example: Question, played: Played) -> Scores:
        return {
            "containment": float(contains(played.answer, example.golds + example.extra_golds)),
            "evidence_found": evidence_found(example.evidence, played),
        }

    @override
    def reward(self, example: Question, played: Played) -> float:
        return self.score(example, played)[self.main_score]

    @override
    def claim(self, example: Question, played: Played) -> Claim | None:
        return Claim(example.question, example.golds, played.answer, example.kind)


def evidence_found(evidence: frozenset[str], played: Played, first: int | None = None) -> float:
    """The share of the evidence among what was retrieved (the first so many of it).

    nan where the data names no evidence, and where nothing was retrieved at all: then the system doesn't
    retrieve, or didn't this time, and the answer's own score tells the rest.
    """
    found = [each.id for turn in played.turns for each in turn.reply.found]
    if not evidence or not found:
        return math.nan
    return len(evidence & set(found[:first])) / len(evidence)


def data_hash(paths: Sequence[Path], *choices: object) -> str:
    """A hash of files and of the options that decide what the examples are."""
    digest = hashlib.sha256(repr(choices).encode())
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def choice(options: TaskOptions, name: str, among: Sequence[str]) -> str:
    """An option that is one of some words; left out, the first. Raises InvalidInput."""
    given = options.extra.get(name, among[0])
    if given not in among:
        raise InvalidInput(f"{name} is {' or '.join(among)}, not {given!r}.")
    return given
