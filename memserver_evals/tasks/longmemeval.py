"""LongMemEval: a user's question about earlier chats with their assistant; six types, and some that can't be answered.

The chats are the agent's history, each at its own time, and the question comes at its own. It was made to be
judged by a model, by a rule for each type; containment stands beside it where the right answer is a short text.
"""

import math
from collections.abc import Sequence

from typing_extensions import override

from memserver_evals.data.longmemeval import (
    LongMemQuestion,
    read_longmemeval,
    read_longmemeval_evidence,
)
from memserver_evals.data.reading import first_fields
from memserver_evals.data.source import find_file
from memserver_evals.scoring.abstention import abstains
from memserver_evals.scoring.text import ANSWER_WORDS
from memserver_evals.task import Material, Played, Scores, Session, Utterance
from memserver_evals.tasks.question import STEP, WORDS_OPTION, Question, QuestionTask, data_hash
from memserver_evals.tasks.registry import TaskEntry, TaskOptions, refuse_unknown

NAME = "longmemeval"
FILES = (
    "longmemeval_s.json",
    "longmemeval_s_cleaned.json",
    "longmemeval_oracle.json",
    "longmemeval_evidence.jsonl",
)
PREFERENCE = "single-session-preference"
INSTRUCTIONS = (
    "You are the assistant of this user. Your earlier chats with them are your history; each has its own date. "
    "Answer the user's question from these chats, briefly. If they don't hold the answer, say that the "
    "information is not enough and what is missing."
)


class LongMemEval(QuestionTask):
    name = NAME
    group_keys = ("type", "answerable")

    @override
    def score(self, example: Question, played: Played) -> Scores:
        """`containment`: the right answer stands in the answer.

        Of questions that can't be answered it is right to say so; what the user would like of an answer is no
        text that could be contained: nan.
        """
        scores = dict(super().score(example, played))
        if example.abstain:
            right = float(abstains(played.answer))
            scores["containment"] = scores["containment_whole"] = right
        elif example.groups["type"] == PREFERENCE:
            scores["containment"] = scores["containment_whole"] = math.nan
        return scores

    @override
    def reward(self, example: Question, played: Played) -> float:
        reward = super().reward(example, played)
        return 0.0 if math.isnan(reward) else reward


def questions(read: Sequence[LongMemQuestion]) -> list[Question]:
    return [_example(asked) for asked in read]


def _example(asked: LongMemQuestion) -> Question:
    sessions = _sessions(asked)
    after = [each.utterances[-1].at + STEP for each in sessions[-1:]]
    return Question(
        asked.id,
        Material(sessions=sessions, instructions=INSTRUCTIONS),
        asked.question,
        asked.answers,
        max([asked.asked_at, *after]),
        f"{NAME}:{'abstention' if asked.abstention else asked.question_type}",
        {"type": asked.question_type, "answerable": "no" if asked.abstention else "yes"},
        _evidence(asked),
        abstain=asked.abstention,
    )


def _sessions(asked: LongMemQuestion) -> tuple[Session, ...]:
    found = []
    now = None
    for session in asked.sessions:
        began = session.began if now is None else max(session.began, now)
        utterances = tuple(
            Utterance(turn.role, turn.text, began + number * STEP, id=f"{session.id}:{number}")
            for number, turn in enumerate(session.turns)
        )
        now = utterances[-1].at + STEP
        found.append(Session(began, utterances, session.id))
    return tuple(found)


def _evidence(asked: LongMemQuestion) -> frozenset[str]:
    return frozenset(
        f"{session.id}:{number}"
        for session in asked.sessions
        for number, turn in enumerate(session.turns)
        if turn.evidence
    )


def make(options: TaskOptions) -> LongMemEval:
    refuse_unknown(options, ENTRY)
    path = find_file(options.data, FILES, options.extra.get("file"))
    published = "haystack_sessions" in first_fields(path)
    examples = questions((read_longmemeval if published else read_longmemeval_evidence)(path))
    kept = options.choice("abstention", ("with", "without"))
    if kept == "without":
        examples = [each for each in examples if not each.abstain]
    words = options.number("answer_words", ANSWER_WORDS)
    return LongMemEval(examples, data_hash([path], kept), words)


ENTRY = TaskEntry(
    name=NAME,
    summary="answer questions of six types about a user's earlier chats, or see that one can't be (LongMemEval)",
    make=make,
    material=frozenset({"sessions"}),
    needs=(" or ".join(FILES),),
    options={
        "file": "the questions, as published or with their evidence alone: a path, or hf:OWNER/REPO/FILE",
        "abstention": "with, or without the questions that can't be answered",
        **WORDS_OPTION,
    },
)
