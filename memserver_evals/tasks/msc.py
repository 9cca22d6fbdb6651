"""MSC consistency, the MemGPT paper's deep memory retrieval: a question about an earlier session, in a new one.

The sessions are the agent's history, each at its own time; the agent plays the one who is asked. The answer is
right if it holds what was said (containment) or a judge finds it right.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from typing_extensions import override

from memserver.errors import BadData
from memserver_evals.data.msc import Dialogue, Line, Side, read_msc, read_self_instruct
from memserver_evals.data.reading import first_fields
from memserver_evals.data.source import find_file
from memserver_evals.scoring.text import contains, rouge_l_recall
from memserver_evals.task import Material, Played, Scores, Session, Utterance
from memserver_evals.tasks.question import STEP, Question, QuestionTask, choice, data_hash
from memserver_evals.tasks.registry import TaskEntry, TaskOptions, refuse_unknown

NAME = "msc"
FILES = ("msc.jsonl", "msc_self_instruct.jsonl")
START = datetime(2023, 1, 2, 9, tzinfo=UTC)
"""When every first session begins: the data knows gaps, and no dates."""
INSTRUCTIONS = (
    "You have talked with this person in earlier conversations, and what you said in them is about yourself. "
    "Now they talk to you again. Answer what they ask from your memory of those conversations, in one short "
    "sentence, as the same person that you were in them."
)


class MscConsistency(QuestionTask):
    """The task."""

    name = NAME
    group_keys = ("session",)

    @override
    def score(self, example: Question, played: Played) -> Scores:
        """How well it was remembered.

        `containment`: the right answer or the rare word in it stands in the answer; `whole_answer`: the whole
        right answer does; `rouge_l_recall`: of the right answer, as the paper has it; `evidence_found`: the
        utterance was among what was retrieved.
        """
        return {
            **super().score(example, played),
            "whole_answer": float(contains(played.answer, example.golds)),
            "rouge_l_recall": rouge_l_recall(played.answer, example.golds),
        }


def read_dialogues(path: Path) -> list[Dialogue]:
    """The dialogues of a file in either format. Raises BadData."""
    return (read_self_instruct if "self_instruct" in first_fields(path) else read_msc)(path)


def tell(
    sessions: Sequence[Sequence[Line]], gaps: Sequence[timedelta], system: Side
) -> tuple[tuple[Session, ...], datetime]:
    """Sessions as the history of the one that the system plays, and when the next one begins."""
    began, told = START, []
    for number, (lines, gap) in enumerate(zip(sessions, gaps, strict=True), start=1):
        utterances = tuple(
            Utterance(
                "assistant" if line.speaker == system else "user",
                line.text,
                began + turn * STEP,
                id=place(number, turn),
            )
            for turn, line in enumerate(lines)
        )
        told.append(Session(began, utterances, str(number)))
        began = max(began + gap, utterances[-1].at + STEP)
    return tuple(told), began


def place(session: int, turn: int) -> str:
    """The id of an utterance: its session counts from 1, its turn from 0."""
    return f"{session}:{turn}"


def questions(dialogues: Sequence[Dialogue]) -> list[Question]:
    """The questions of the dialogues that have one."""
    examples = []
    for dialogue in dialogues:
        if (asked := dialogue.question) is None:
            continue
        sessions, at = tell(dialogue.sessions, dialogue.gaps, asked.answerer)
        proof = asked.evidence
        examples.append(
            Question(
                dialogue.id,
                Material(sessions=sessions, instructions=INSTRUCTIONS),
                asked.question,
                (asked.answer,),
                at,
                NAME,
                {"session": proof.session if proof else "unknown"},
                frozenset({place(proof.session, proof.turn)}) if proof else frozenset(),
                (proof.keyword,) if proof else (),
            )
        )
    return examples


def make(options: TaskOptions) -> MscConsistency:
    """The task as the command line wants it."""
    refuse_unknown(options, ENTRY)
    path = find_file(options.data, FILES, options.extra.get("file"))
    examples = questions(read_dialogues(path))
    if choice(options, "evidence", ("any", "known")) == "known":
        examples = [each for each in examples if each.evidence]
    if not examples:
        raise BadData(f"{path.name}: no dialogue in it has a question.")
    return MscConsistency(examples, data_hash([path], options.extra.get("evidence")))


ENTRY = TaskEntry(
    name=NAME,
    summary="remember, in a new session, what was said in an earlier one (MSC, deep memory retrieval)",
    make=make,
    material=frozenset({"sessions"}),
    needs=(
        FILES[0],
        f"or MemGPT/MSC-Self-Instruct ({FILES[1]}, or file=hf:MemGPT/MSC-Self-Instruct/{FILES[1]})",
    ),
    options={
        "file": "the dialogues, in either format: a path, or hf:OWNER/REPO/FILE",
        "evidence": "any, or known: only questions of which the data says where the answer was said",
    },
)
