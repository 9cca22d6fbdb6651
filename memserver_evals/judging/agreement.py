"""How far a judge agrees with labels given by hand.

The labels are JSON Lines, one answer a line; `label` is `correct` or `wrong` and `labelled_by` says who or what
gave it:

    {"id": "msc/memserver/valid_3", "kind": "msc", "question": "…", "gold": ["…"], "answer": "…",
     "label": "correct", "labelled_by": "J. Doe"}

A line without a label is an answer that waits for one. Where the data may not be passed on, `question` and `gold`
are left out, and found in the data again by the id.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Literal, Self

from pydantic import model_validator

from memserver.errors import BadData
from memserver_evals.data.reading import Record, Text, bad_place, read_lines
from memserver_evals.judging.base import Judge, Verdict
from memserver_evals.task import Claim

Label = Literal["correct", "wrong"]


class LabelledAnswer(Record):
    id: Text
    question: str = ""
    gold: tuple[Text, ...] = ()
    answer: str
    kind: str = ""
    label: Label | None = None
    labelled_by: str = ""

    @model_validator(mode="after")
    def _somebody_labelled_it(self) -> Self:
        if self.label and not self.labelled_by.strip():
            raise ValueError("labelled_by: it must say who or what gave the label")
        if bool(self.question.strip()) != bool(self.gold):
            raise ValueError("question and gold go together, or are both left out")
        return self

    @property
    def claim(self) -> Claim:
        return Claim(self.question, self.gold, self.answer, self.kind)


@dataclass(frozen=True, slots=True)
class Agreement:
    judge: str  # its name
    answers: int  # how many were labelled
    # how many of them got no verdict; these count as disagreement in `share`, and have no part in
    # `kappa`
    broken: int
    both_correct: int  # label and verdict say correct
    both_wrong: int  # both say wrong
    too_kind: int  # labelled wrong, judged correct
    too_strict: int  # labelled correct, judged wrong

    @property
    def share(self) -> float:
        return (self.both_correct + self.both_wrong) / self.answers if self.answers else nan

    @property
    def kappa(self) -> float:
        """Cohen's kappa: agreement beyond chance, 1 at most; nan where chance alone would agree always."""
        judged = self.answers - self.broken
        if not judged:
            return nan
        observed = (self.both_correct + self.both_wrong) / judged
        labelled = (self.both_correct + self.too_strict) / judged
        said = (self.both_correct + self.too_kind) / judged
        by_chance = labelled * said + (1 - labelled) * (1 - said)
        return (observed - by_chance) / (1 - by_chance) if by_chance < 1 else nan


def read_labels(path: Path) -> list[LabelledAnswer]:
    """The answers of a file that have labels. Raises BadData: with file and line; also if none has a label."""
    answers = read_lines(path, LabelledAnswer, key=lambda each: each.id)
    labelled = [each for each in answers if each.label]
    if not labelled:
        raise bad_place(path, "line 1", "no answer has a label yet")
    return labelled


def write_unlabelled(path: Path, answers: Iterable[LabelledAnswer]) -> int:
    """Write answers for somebody to label; answers how many. A file that is there is left alone.

    Raises BadData: the file is there already.
    """
    lines = [json.dumps(each.model_dump(), ensure_ascii=False) + "\n" for each in answers]
    try:
        with path.open("x", encoding="utf-8") as file:
            file.writelines(lines)
    except FileExistsError:
        raise BadData(
            f"{path} is there already.", hint="Labels may be in it: name another file."
        ) from None
    return len(lines)


async def agreement(judge: Judge, answers: Sequence[LabelledAnswer]) -> Agreement:
    """Put all answers to a judge and count. Raises what the judge raises."""
    return count(judge.name, answers, [await judge.judge(each.claim) for each in answers])


def count(judge: str, answers: Sequence[LabelledAnswer], verdicts: Sequence[Verdict]) -> Agreement:
    """Count verdicts against labels; the two are in the same order."""
    pairs = [
        (each.label == "correct", verdict.correct)
        for each, verdict in zip(answers, verdicts, strict=True)
    ]
    return Agreement(
        judge,
        answers=len(pairs),
        broken=sum(verdict is None for _, verdict in pairs),
        both_correct=pairs.count((True, True)),
        both_wrong=pairs.count((False, False)),
        too_kind=pairs.count((False, True)),
        too_strict=pairs.count((True, False)),
    )
