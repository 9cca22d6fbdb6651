"""Retrieval alone: is the evidence among the first k that a search finds. No model answers anything.

Three sets of texts with questions whose evidence is known: NaturalQuestions passages, the turns of MSC dialogues, the
turns of LoCoMo conversations. Each corpus is a library of its own. `benchmarks/retrieval.py` asks the same of the
product's code without a server.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import override

from memserver.errors import BadData, InvalidInput
from memserver_evals.data.locomo import read_locomo
from memserver_evals.data.natural_questions import read_natural_questions
from memserver_evals.data.source import find_file
from memserver_evals.task import (
    Claim,
    Document,
    Groups,
    Library,
    Material,
    Played,
    Scores,
    System,
    ask,
)
from memserver_evals.tasks.msc import place, read_dialogues
from memserver_evals.tasks.question import data_hash
from memserver_evals.tasks.registry import ReadTask, TaskEntry, TaskOptions, refuse_unknown

NAME = "retrieval"
AT = (1, 5, 10, 20)
"""The numbers of results that are looked at."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, and the ids of the texts in its corpus that answer it.

    A hard one has texts in the corpus that were chosen to be mistaken for its answer.
    """

    id: str
    text: str
    evidence: frozenset[str]
    hard: bool = False


@dataclass(frozen=True, slots=True)
class Corpus:
    """Texts that are searched together, and what is asked of them."""

    name: str
    documents: tuple[Document, ...]
    questions: tuple[Asked, ...]


def nq_corpora(folder: Path) -> Iterator[Corpus]:
    """One corpus of all passages; right is the question's own gold passage and no other."""
    paths = [find_file(folder, (name,)) for name in FILES["nq"]]
    data = read_natural_questions(*paths)
    yield Corpus(
        "nq",
        tuple(Document(each.id, each.text, each.title) for each in data.passages.values()),
        tuple(
            Asked(each.id, each.question, frozenset(each.gold_ids), bool(each.own_ids))
            for each in data.questions
        ),
    )


def msc_corpora(folder: Path) -> Iterator[Corpus]:
    """A corpus for each dialogue that has a question of which the evidence is known."""
    for dialogue in read_dialogues(find_file(folder, FILES["msc"])):
        asked = dialogue.question
        if asked is None or asked.evidence is None:
            continue
        yield Corpus(
            dialogue.id,
            tuple(
                Document(place(number, turn), f"{line.speaker}: {line.text}")
                for number, lines in enumerate(dialogue.sessions, start=1)
                for turn, line in enumerate(lines)
            ),
            (
                Asked(
                    dialogue.id,
                    asked.question,
                    frozenset({place(asked.evidence.session, asked.evidence.turn)}),
                ),
            ),
        )


def locomo_corpora(folder: Path) -> Iterator[Corpus]:
    """A corpus for each conversation; questions without evidence in it are left out."""
    for conversation in read_locomo(find_file(folder, FILES["locomo"])):
        yield Corpus(
            conversation.id,
            tuple(
                Document(turn.dia_id, f"{turn.speaker}: {turn.shown}")
                for session in conversation.sessions
                for turn in session.turns
            ),
            tuple(
                Asked(each.id, each.question, frozenset(each.evidence))
                for each in conversation.questions
                if each.evidence
            ),
        )


FILES: Mapping[str, tuple[str, ...]] = {
    "nq": ("nq_open.jsonl", "nq_passages.jsonl"),
    "msc": ("msc.jsonl",),
    "locomo": ("locomo10.json",),
}
DATA_SETS: Mapping[str, Callable[[Path], Iterator[Corpus]]] = {
    "nq": nq_corpora,
    "msc": msc_corpora,
    "locomo": locomo_corpora,
}


@dataclass(frozen=True, slots=True)
class RetrievalQuery:
    id: str
    data_set: str
    library: Library
    asked: Asked

    @property
    def answer(self) -> str:
        """The evidence, as reports show it."""
        texts = [each.shown for each in self.library.documents if each.id in self.asked.evidence]
        return " | ".join(texts)


class Retrieval(ReadTask[RetrievalQuery]):
    """The task. It is played by what searches, and what is said to it has no part in the scores."""

    name = NAME
    main_score = "recall"
    group_keys = ("data",)

    def __init__(self, corpora: Mapping[str, Sequence[Corpus]], data_hash: str) -> None:
        examples = tuple(
            RetrievalQuery(f"{data_set}_{asked.id}", data_set, library, asked)
            for data_set, read in corpora.items()
            for corpus in read
            for library in [Library(f"{NAME}-{data_set}-{corpus.name}", corpus.documents)]
            for asked in corpus.questions
        )
        super().__init__(examples, data_hash)

    @override
    def groups(self, example: RetrievalQuery) -> Groups:
        name = example.data_set + (" (hard)" if example.asked.hard else "")
        return {
            "data": name,
            "cluster": example.library.name if example.data_set == "locomo" else example.id,
        }

    @override
    async def play(self, example: RetrievalQuery, system: System) -> Played:
        material = Material(library=example.library, documents_shown=max(AT))
        return await ask(system, example.id, material, example.asked.text)

    @override
    def score(self, example: RetrievalQuery, played: Played) -> Scores:
        """`recall`: the share of the evidence among the first ten; `recall@k` among the first k."""
        found = [each.id for turn in played.turns for each in turn.reply.found]
        evidence = example.asked.evidence
        at = {k: len(evidence & set(found[:k])) / len(evidence) for k in AT}
        return {"recall": at[10], **{f"recall@{k}": share for k, share in at.items()}}

    @override
    def reward(self, example: RetrievalQuery, played: Played) -> float:
        reward = self.score(example, played)["recall"]
        return 0.0 if math.isnan(reward) else reward

    @override
    def claim(self, example: RetrievalQuery, played: Played) -> Claim | None:
        return None


def make(options: TaskOptions) -> Retrieval:
    refuse_unknown(options, ENTRY)
    wanted = options.extra.get("sets", ",".join(DATA_SETS)).split(",")
    for name in wanted:
        if name not in DATA_SETS:
            raise InvalidInput(f"sets are of {', '.join(DATA_SETS)}, not {name!r}.")
    if options.data is None:
        raise BadData("There is no data folder.", hint="Name it by --data or MEMSERVER_DATA.")
    corpora = {name: list(DATA_SETS[name](options.data)) for name in wanted}
    paths = [options.data / file for name in wanted for file in FILES[name]]
    return Retrieval(corpora, data_hash(paths, wanted))


ENTRY = TaskEntry(
    name=NAME,
    summary="find the passage or the turn that answers; no model is needed (recall@k)",
    make=make,
    material=frozenset({"documents"}),
    systems=("search-hybrid", "search-vector", "search-text"),
    needs=tuple(file for files in FILES.values() for file in files),
    options={"sets": f"of {', '.join(DATA_SETS)}, several with commas (all)"},
)
