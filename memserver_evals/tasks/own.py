"""Data of one's own: a history and documents, and questions on them (`memserver eval own --data mine.jsonl`)."""

from collections import Counter
from collections.abc import Iterator, Sequence

from typing_extensions import override

from memserver_evals.data.own import DAY, OwnHistory, read_own
from memserver_evals.data.reading import bad_place
from memserver_evals.data.source import find_file
from memserver_evals.scoring.abstention import abstains
from memserver_evals.scoring.text import ANSWER_WORDS
from memserver_evals.task import Library, Material, Played, Scores
from memserver_evals.tasks.question import WORDS_OPTION, Question, QuestionTask, data_hash
from memserver_evals.tasks.registry import TaskEntry, TaskOptions, refuse_unknown

NAME, FILE = "own", "own.jsonl"
INSTRUCTIONS = (
    "Answer the question from your earlier conversations and from the documents that you can look up, briefly. "
    "If they don't hold the answer, say that you don't know."
)
UNKNOWABLE = "It can't be known."
LOOK_UP = "The documents are in your archival storage: search it before you answer."


class OwnTask(QuestionTask):
    name = NAME
    group_keys = ("group",)

    @override
    def score(self, example: Question, played: Played) -> Scores:
        """`containment`: a right answer stands in the answer; where it can't be known, it is right to say so."""
        scores = dict(super().score(example, played))
        if example.abstain:
            scores["containment"] = scores["containment_whole"] = float(abstains(played.answer))
        return scores


def questions(
    histories: Sequence[OwnHistory], instructions: str = INSTRUCTIONS
) -> Iterator[Question]:
    for history in histories:
        several = len(history.questions) > 1
        name = f"{NAME}-{history.id}"
        library = Library(name, history.documents, shared=several) if history.documents else None
        material = Material(history.sessions, library, instructions, look_up=LOOK_UP)
        for number, asked in enumerate(history.questions, 1):
            at = asked.at or (history.ended + DAY if history.ended else None)
            yield Question(
                f"{history.id}/{asked.id or number}" if several or asked.id else history.id,
                material,
                asked.question,
                asked.golds or (UNKNOWABLE,),
                at,
                f"answer:{'abstention' if asked.answer is None else ''}",
                {"group": asked.group or "all", "cluster": history.id},
                frozenset(asked.evidence),
                abstain=asked.answer is None,
            )


def make(options: TaskOptions) -> OwnTask:
    refuse_unknown(options, ENTRY)
    named = options.data if options.data is not None and not options.data.is_dir() else None
    path = named or find_file(options.data, (FILE,), options.extra.get("file"))
    instructions = options.extra.get("instructions", INSTRUCTIONS)
    words = options.number("answer_words", ANSWER_WORDS)
    examples = list(questions(read_own(path), instructions))
    ids = [each.id for each in examples]
    if twice := sorted(each for each, count in Counter(ids).items() if count > 1):
        raise bad_place(path, f"question {twice[0]}", "there are two of this id")
    return OwnTask(examples, data_hash([path], instructions), words)


ENTRY = TaskEntry(
    name=NAME,
    summary="answer questions on data of your own",
    make=make,
    material=frozenset({"sessions", "documents"}),
    needs=(
        f"your file, named by --data, or {FILE}: conversations, documents, questions with answers",
    ),
    options={
        "file": "your file: a path, or hf:OWNER/REPO/FILE",
        "instructions": "what is asked of the systems",
        **WORDS_OPTION,
    },
)
