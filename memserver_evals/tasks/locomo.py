"""LoCoMo: questions in five categories about a long conversation of two people, which the system has overheard.

Everything that the two said is in the history under their names, at its time. Answers are scored by LoCoMo's own
F1 (`scoring.locomo`), and judged. Figures are not comparable with published ones where the reader or the
judge differ, as they mostly do.
"""

from collections.abc import Sequence
from datetime import timedelta

from typing_extensions import override

from memserver_evals.data.locomo import ADVERSARIAL, CATEGORIES, LocomoConversation, read_locomo
from memserver_evals.data.source import find_file
from memserver_evals.scoring.locomo import locomo_f1, refuses
from memserver_evals.scoring.text import ANSWER_WORDS
from memserver_evals.task import Material, Played, Scores, Session, Utterance
from memserver_evals.tasks.question import STEP, WORDS_OPTION, Question, QuestionTask, data_hash
from memserver_evals.tasks.registry import TaskEntry, TaskOptions, refuse_unknown

NAME = "locomo"
FILE = "locomo10.json"
REFUSAL = "Not mentioned in the conversation"
NUMBERS = {name: number for number, name in CATEGORIES.items()}
INSTRUCTIONS = (
    "You have overheard the conversations of two people; they are your history. Somebody else asks you about them. "
    "Answer in a short phrase, with exact words from the conversations where you can. Where you are asked when, "
    "give a date: what was said tells of times by the day on which it was said. If the conversations don't tell, "
    f'answer "{REFUSAL}".'
)


class Locomo(QuestionTask):
    name = NAME
    main_score = "f1"
    group_keys = ("category",)

    @override
    def score(self, example: Question, played: Played) -> Scores:
        """`f1`: LoCoMo's own, of the whole answer; `containment`: a right answer stands in it (adversarial: it refuses)."""
        category = NUMBERS[str(example.groups["category"])]
        gold = example.golds[0]
        scores = dict(super().score(example, played))
        if category == ADVERSARIAL:
            scores["containment"] = scores["containment_whole"] = float(refuses(played.answer))
        return {"f1": locomo_f1(played.answer, gold, category), **scores}


def sessions_of(conversation: LocomoConversation) -> tuple[Session, ...]:
    return tuple(
        Session(
            session.began,
            tuple(
                Utterance(
                    "user", turn.shown, session.began + number * STEP, turn.speaker, turn.dia_id
                )
                for number, turn in enumerate(session.turns)
                if turn.shown
            ),
            str(session.number),
        )
        for session in conversation.sessions
    )


def questions(conversations: Sequence[LocomoConversation]) -> list[Question]:
    """All questions; each is asked the day after the last session."""
    examples = []
    for conversation in conversations:
        sessions = sessions_of(conversation)
        material = Material(sessions=sessions, instructions=INSTRUCTIONS)
        at = max(each.at for session in sessions for each in session.utterances) + timedelta(days=1)
        for asked in conversation.questions:
            abstain = asked.category == ADVERSARIAL
            examples.append(
                Question(
                    asked.id,
                    material,
                    asked.question,
                    (REFUSAL,) if abstain else (asked.answer,),
                    at,
                    f"{NAME}:abstention" if abstain else NAME,
                    {"category": CATEGORIES[asked.category], "cluster": conversation.id},
                    frozenset(asked.evidence),
                    abstain=abstain,
                )
            )
    return examples


def make(options: TaskOptions) -> Locomo:
    refuse_unknown(options, ENTRY)
    path = find_file(options.data, (FILE,), options.extra.get("file"))
    examples = questions(read_locomo(path))
    adversarial = options.choice("adversarial", ("with", "without"))
    if adversarial == "without":
        examples = [each for each in examples if not each.abstain]
    words = options.number("answer_words", ANSWER_WORDS)
    return Locomo(examples, data_hash([path], adversarial), words)


ENTRY = TaskEntry(
    name=NAME,
    summary="answer questions of five kinds about a long conversation of two others (LoCoMo)",
    make=make,
    material=frozenset({"sessions"}),
    needs=(FILE,),
    options={
        "file": "LoCoMo as published: a path, or hf:OWNER/REPO/FILE",
        "adversarial": "with, or without: most published figures leave these questions out",
        **WORDS_OPTION,
    },
)
