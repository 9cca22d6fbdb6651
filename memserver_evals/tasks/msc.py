"""MSC consistency, the MemGPT paper's deep memory retrieval: a question about an earlier session, in a new one.

The sessions are the agent's history, each at its own time; the agent plays the one who is asked. The answer is
right if its first words hold what was said (containment) or a judge finds them right.
"""

import zlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from typing_extensions import override

from memserver.errors import BadData, InvalidInput
from memserver_evals.data.msc import Dialogue, Line, Side, read_msc, read_self_instruct
from memserver_evals.data.reading import first_fields
from memserver_evals.data.source import find_file
from memserver_evals.scoring.text import ANSWER_WORDS, contains, rouge_l
from memserver_evals.task import Material, Played, Scores, Session, Utterance
from memserver_evals.tasks.question import STEP, WORDS_OPTION, Question, QuestionTask, data_hash
from memserver_evals.tasks.registry import TaskEntry, TaskOptions, refuse_unknown

NAME = "msc"
FILES = ("msc.jsonl", "msc_self_instruct.jsonl")
START = datetime(2023, 1, 2, 9, tzinfo=UTC)
"""When every first session begins: the data knows gaps, and no dates."""
HALVES = ("all", "even", "odd")
HALF_OPTION = {"half": "all; even, odd: only the dialogues whose CRC-32 of the id is so"}
INSTRUCTIONS = (
    "You have talked with this person in earlier conversations, and what you said in them is about yourself. "
    "Now they talk to you again. Answer what they ask from your memory of those conversations, in one short "
    "sentence, as the same person that you were in them."
)


class MscConsistency(QuestionTask):
    name = NAME
    group_keys = ("session",)

    @override
    def score(self, example: Question, played: Played) -> Scores:
        """How well it was remembered, by the words of the answer that count.

        `containment`: the right answer or the rare word in it stands there (`containment_whole`: somewhere in
        the answer); `whole_answer`: the whole right answer does; `rouge_l_recall` and `rouge_l_precision`: the
        shares of the right answer and of what was said; `evidence_found`: the utterance was among what was
        retrieved.
        """
        said = self.counted(example, played)
        recall, precision = rouge_l(said, example.golds)
        return {
            **super().score(example, played),
            "whole_answer": float(contains(said, example.golds)),
            "rouge_l_recall": recall,
            "rouge_l_precision": precision,
        }


def read_dialogues(path: Path, *, sessions: int = 4) -> list[Dialogue]:
    """The dialogues of a file in either format. Raises BadData; InvalidInput for a fifth session that isn't there."""
    if "self_instruct" in first_fields(path):
        return read_self_instruct(path, with_last=sessions == 5)
    if sessions == 5:
        raise InvalidInput(
            f"{path.name} has no fifth session.",
            hint="sessions=5 is for MemGPT/MSC-Self-Instruct as published (file=…).",
        )
    return read_msc(path)


def kept_half(dialogues: Sequence[Dialogue], half: str) -> list[Dialogue]:
    wanted = {"all": {0, 1}, "even": {0}, "odd": {1}}[half]
    return [each for each in dialogues if zlib.crc32(each.id.encode()) % 2 in wanted]


def as_history(
    sessions: Sequence[Sequence[Line]], gaps: Sequence[timedelta], system: Side
) -> tuple[tuple[Session, ...], datetime]:
    """Sessions as the history of the one that the system plays, and when the next one begins."""
    began, found = START, []
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
        found.append(Session(began, utterances, str(number)))
        began = max(began + gap, utterances[-1].at + STEP)
    return tuple(found), began


def place(session: int, turn: int) -> str:
    """The id of an utterance: its session counts from 1, its turn from 0."""
    return f"{session}:{turn}"


def questions(dialogues: Sequence[Dialogue]) -> list[Question]:
    examples = []
    for dialogue in dialogues:
        if (asked := dialogue.question) is None:
            continue
        sessions, at = as_history(dialogue.sessions, dialogue.gaps, asked.answerer)
        proof = asked.evidence
        examples.append(
            Question(
                dialogue.id,
                Material(sessions=sessions, instructions=INSTRUCTIONS, answers_from="assistant"),
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
    refuse_unknown(options, ENTRY)
    path = find_file(options.data, FILES, options.extra.get("file"))
    sessions, half = options.choice("sessions", ("4", "5")), options.choice("half", HALVES)
    dialogues = read_dialogues(path, sessions=int(sessions))
    examples = questions(kept_half(dialogues, half))
    if options.choice("evidence", ("any", "known")) == "known":
        examples = [each for each in examples if each.evidence]
    if not examples:
        raise BadData(f"{path.name}: no dialogue in it has a question.")
    others = [each for each in (sessions, half) if each not in {"4", "all"}]
    digest = data_hash([path], options.extra.get("evidence"), *others)
    return MscConsistency(examples, digest, options.number("answer_words", ANSWER_WORDS))


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
        "sessions": "4; 5: of the published file, the session in which is asked is history too",
        **HALF_OPTION,
        **WORDS_OPTION,
    },
)
