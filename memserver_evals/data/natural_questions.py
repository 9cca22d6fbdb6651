"""NaturalQuestions with passages to look the answers up in.

Two formats give the same values: ours, `nq_open.jsonl` beside `nq_passages.jsonl`; and the files of Lost in
the Middle (arXiv 2307.03172), in which each question has its documents with it (`ctxs`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from pydantic import Field

from memserver_evals.data.reading import Record, Text, bad_place, read_lines


class Passage(Record):
    id: Text
    title: str
    text: Text


class NqQuestion(Record):
    """A question as people typed it; any of the answers is right, and the gold passages hold one."""

    id: Text
    question: Text
    answers: tuple[Text, ...] = Field(min_length=1)
    gold_ids: tuple[Text, ...] = Field(min_length=1)
    ctx_ids: tuple[Text, ...] | None = Field(default=None, min_length=1)

    @property
    def own_ids(self) -> tuple[str, ...]:
        """Passages of its own: the gold ones, and others chosen to be mistaken for them; empty where it has none."""
        return self.ctx_ids or ()


@dataclass(frozen=True, slots=True)
class NqData:
    """Questions, and every passage by its id, in the order of the file."""

    questions: tuple[NqQuestion, ...]
    passages: Mapping[str, Passage]


def read_natural_questions(questions: Path, passages: Path) -> NqData:
    """Read our format. Raises BadData, also where a question names a passage that is not there."""
    known = {each.id: each for each in read_lines(passages, Passage, key=lambda each: each.id)}
    asked = read_lines(questions, NqQuestion, key=lambda each: each.id)
    for number, each in enumerate(asked, start=1):
        for field, ids in (("gold_ids", each.gold_ids), ("ctx_ids", each.own_ids)):
            for missing in (name for name in ids if name not in known):
                what = f"{field}: there is no passage {missing!r} in {passages.name}"
                raise bad_place(questions, f"record {number} ({each.id})", what)
        if each.own_ids and not set(each.gold_ids) <= set(each.own_ids):
            what = "ctx_ids: the gold passages are not among them"
            raise bad_place(questions, f"record {number} ({each.id})", what)
    return NqData(tuple(asked), known)


class _Context(Record):
    id: str | None = None
    title: str
    text: Text
    isgold: bool = False
    hasanswer: bool = False


class _WithContexts(Record):
    question: Text
    answers: tuple[Text, ...] = Field(min_length=1)
    ctxs: tuple[_Context, ...] = Field(min_length=1)


def read_lost_in_the_middle(path: Path) -> NqData:
    """Read a file of Lost in the Middle, .jsonl or .jsonl.gz.

    Questions have no ids there: they get `nq0000` by their place. Passages are one and the same where title
    and text are; a passage's id is made of these, since the file's own is not the same for the gold ones.
    Where no document is marked gold (retrieved documents, as the MemGPT paper used them), those that hold an
    answer count as gold.

    Raises BadData: with file and line; also if a question has no gold document.
    """
    passages: dict[str, Passage] = {}
    questions = []
    for number, row in enumerate(read_lines(path, _WithContexts)):
        own, gold, holding = [], [], []
        for context in row.ctxs:
            name = "d" + sha256(f"{context.title}\n{context.text}".encode()).hexdigest()[:16]
            passage = Passage(id=name, title=context.title, text=context.text)
            passages.setdefault(name, passage)
            own.append(name)
            gold += [name] * context.isgold
            holding += [name] * context.hasanswer
        if not (gold or holding):
            what = "ctxs: none is marked isgold, and none hasanswer"
            raise bad_place(path, f"record {number + 1}", what)
        unique = tuple(dict.fromkeys(own))
        right = tuple(dict.fromkeys(gold or holding))
        questions.append(
            NqQuestion(
                id=f"nq{number:04}",
                question=row.question,
                answers=row.answers,
                gold_ids=right,
                ctx_ids=unique,
            )
        )
    return NqData(tuple(questions), passages)
