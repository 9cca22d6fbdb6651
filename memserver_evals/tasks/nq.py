"""NaturalQuestions document QA: a question, and passages of an encyclopedia to find the answer in.

memserver has the passages in archival storage and searches for itself. A fixed-context reader gets the K
documents that a retriever ranks first, for every K asked for; the more there are, the less of each fits its
window. An example is one question, asked once for each K, so that a sample of questions has every K: the
scores are `accuracy@1`, `accuracy@5` and so on. A system for which K makes no difference is asked once.

The MemGPT paper's baselines cut every document to window / K *characters*, where tokens were meant, which starved
them as K grew. Both can be had (`budget`): `accuracy@K` is with tokens, `accuracy_characters@K` the paper's.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from typing_extensions import override

from memserver.errors import BadData, InvalidInput
from memserver_evals.data.natural_questions import (
    NqData,
    NqQuestion,
    read_lost_in_the_middle,
    read_natural_questions,
)
from memserver_evals.data.source import find_file
from memserver_evals.scoring.documents import (
    INSUFFICIENT,
    is_insufficient,
    nq_accuracy,
    said_answer,
)
from memserver_evals.scoring.text import ANSWER_WORDS, contains_substring, first_words
from memserver_evals.task import (
    Claim,
    Cut,
    Document,
    Groups,
    Library,
    Material,
    Played,
    Reply,
    Scores,
    System,
    Turn,
)
from memserver_evals.tasks.question import WORDS_OPTION, data_hash, evidence_found
from memserver_evals.tasks.registry import ReadTask, TaskEntry, TaskOptions, refuse_unknown

NAME = "nq"
QUESTIONS, PASSAGES = "nq_open.jsonl", "nq_passages.jsonl"
DOCUMENTS = "1,5,10,20,50,100,200,all"
MAIN = 10
"""The K of the score `accuracy`, or the nearest to it that is asked for; and the rank up to which gold counts."""
BUDGETS: Mapping[Cut, str] = {"characters": "_characters", "tokens": "", "whole": "_whole"}
INSTRUCTIONS = (
    "Answer the person's question from the documents, some of which have nothing to do with it. Give the answer "
    "and the text of the document it is from, in the form 'ANSWER: <the answer>, DOCUMENT: <the text>'. If no "
    f"document holds the answer, reply '{INSUFFICIENT}'. Answer as if it were the year 2018."
)
LOOK_UP = (
    "The documents are in your archival storage, and the answer is always in one of them. If a search doesn't "
    "bring it, keep searching: look at the next page, or ask with other words."
)


@dataclass(frozen=True, slots=True)
class Reading:
    """How a fixed-context reader is shown documents: how many, and cut how."""

    documents: int
    cut: Cut


class NqDocuments(ReadTask[NqQuestion]):
    name = NAME
    main_score = "accuracy"
    group_keys = ("distractors",)

    def __init__(
        self,
        data: NqData,
        readings: Sequence[Reading],
        data_hash: str,
        answer_words: int = ANSWER_WORDS,
    ) -> None:
        """The last one of the readings is the main one; words of an answer count from ANSWER on."""
        super().__init__(data.questions, data_hash)
        self._readings = tuple(readings)
        self._answer_words = answer_words
        self._library = Library(
            NAME, tuple(Document(each.id, each.text, each.title) for each in data.passages.values())
        )

    @override
    def groups(self, example: NqQuestion) -> Groups:
        return {"distractors": "own" if example.own_ids else "none"}

    @override
    async def play(self, example: NqQuestion, system: System) -> Played:
        turns: list[Turn] = []
        for reading in self._readings:
            turns.append(await self._ask(example, system, reading))
            if not _depends_on_reading(turns[-1].reply):
                break
        return Played(tuple(turns), {"readings": len(turns)})

    async def _ask(self, example: NqQuestion, system: System, reading: Reading) -> Turn:
        material = Material(
            library=self._library,
            instructions=INSTRUCTIONS,
            documents_shown=reading.documents,
            documents_cut=reading.cut,
            look_for=(example.question,),
            look_up=LOOK_UP,
        )
        question = example.question.rstrip("?") + "?"
        async with system.begin(example.id, material) as conversation:
            return Turn(question, await conversation.say(question))

    @override
    def score(self, example: NqQuestion, played: Played) -> Scores:
        """What was answered.

        `accuracy`: any right answer is a substring of the first words after ANSWER (`accuracy_whole`: of all up to
        DOCUMENT); `insufficient`: the share that said there is not enough to answer, a count and no merit;
        `gold_found`: the gold passage is among the first ten that were retrieved. With `@K` the same for every K.
        """
        if not played.turns:
            return {"accuracy": 0.0, "insufficient": 0.0}
        gold = frozenset(example.gold_ids)
        scores = {
            "accuracy": self._right(example, played.answer),
            "accuracy_whole": float(nq_accuracy(played.answer, example.answers)),
            "insufficient": float(is_insufficient(played.answer)),
            "gold_found": evidence_found(gold, Played(played.turns[-1:]), MAIN),
        }
        for reading, turn in self._read(played):
            name = f"{BUDGETS[reading.cut]}@{self._label(reading)}"
            scores[f"accuracy{name}"] = self._right(example, turn.reply.text)
            scores[f"insufficient{name}"] = float(is_insufficient(turn.reply.text))
        return scores

    def _counted(self, reply: str) -> str:
        return first_words(said_answer(reply), self._answer_words)

    def _right(self, example: NqQuestion, reply: str) -> float:
        return float(contains_substring(self._counted(reply), example.answers))

    def evidence(self, example: NqQuestion) -> frozenset[str]:
        return frozenset(example.gold_ids)

    def _read(self, played: Played) -> Iterator[tuple[Reading, Turn]]:
        """Each reading with its turn; a single turn stands for all of them."""
        if len(played.turns) == 1:
            yield from ((reading, played.turns[0]) for reading in self._readings)
        else:
            yield from zip(self._readings, played.turns, strict=False)

    def _label(self, reading: Reading) -> str:
        shown = reading.documents
        return "all" if shown == len(self._library.documents) else str(shown)

    @override
    def reward(self, example: NqQuestion, played: Played) -> float:
        return self.score(example, played)["accuracy"]

    @override
    def claim(self, example: NqQuestion, played: Played) -> Claim | None:
        return Claim(example.question, example.answers, self._counted(played.answer), NAME)


def _depends_on_reading(reply: Reply) -> bool:
    """Whether the system put retrieved documents into its prompt: then how many makes a difference."""
    return reply.share_fitted is not None and bool(reply.found)


def readings_of(documents: str, budgets: str, passages: int) -> list[Reading]:
    """What is to be asked for, the main one last. Raises InvalidInput."""
    shown = sorted({_number(each, passages) for each in documents.split(",")})
    main = min(shown, key=lambda count: (abs(count - MAIN), count))
    shown.sort(key=lambda count: count == main)
    cuts = []
    for name in budgets.split(","):
        known = next((cut for cut in BUDGETS if cut == name.strip()), None)
        if known is None:
            raise InvalidInput(f"budget is {', '.join(BUDGETS)} or several of them, not {name!r}.")
        cuts.append(known)
    if "tokens" in cuts:
        cuts.sort(key=lambda cut: cut == "tokens")
    return [
        Reading(count, cut) for part in (shown[:-1], shown[-1:]) for cut in cuts for count in part
    ]


def _number(given: str, passages: int) -> int:
    if given.strip() == "all":
        return passages
    if not given.strip().isdecimal() or int(given) < 1:
        raise InvalidInput(f"documents are numbers from 1, or all: {given!r} is neither.")
    return min(int(given), passages)


def load(options: TaskOptions) -> tuple[NqData, str]:
    """Questions and passages that the options name, and a hash of them. Raises BadData."""
    if file := options.extra.get("file"):
        path = find_file(options.data, (), file)
        data, paths = read_lost_in_the_middle(path), [path]
    else:
        paths = [find_file(options.data, (name,)) for name in (QUESTIONS, PASSAGES)]
        data = read_natural_questions(*paths)
    chosen = options.choice("questions", ("own", "all"))
    if chosen == "own":
        data = NqData(tuple(each for each in data.questions if each.own_ids), data.passages)
    if not data.questions:
        raise BadData(
            f"{paths[0].name}: no question in it has distractors of its own.",
            hint="questions=all takes the others too.",
        )
    return data, data_hash(paths, chosen)


def make(options: TaskOptions) -> NqDocuments:
    refuse_unknown(options, ENTRY)
    data, digest = load(options)
    documents = options.extra.get("documents", DOCUMENTS)
    budgets = options.extra.get("budget", "characters,tokens")
    readings = readings_of(documents, budgets, len(data.passages))
    words = options.number("answer_words", ANSWER_WORDS)
    return NqDocuments(data, readings, data_hash([], digest, readings), words)


ENTRY = TaskEntry(
    name=NAME,
    summary="answer questions from documents, for growing numbers of documents (NaturalQuestions)",
    make=make,
    material=frozenset({"documents"}),
    needs=(f"{QUESTIONS} and {PASSAGES}", "or a file of Lost in the Middle (file=…)"),
    options={
        "file": "a file of Lost in the Middle: a path, or hf:OWNER/REPO/FILE",
        "questions": "own: those with distractors of their own; all",
        "documents": f"how many a fixed-context reader is shown, several with commas ({DOCUMENTS})",
        "budget": "how they are cut to fit: tokens, characters (the paper's flaw), whole; several with commas "
        "(characters,tokens)",
        **WORDS_OPTION,
    },
)
