"""LongMemEval (arXiv 2410.10813): questions about a user's chats with an assistant.

Two formats give the same values: the published list (`longmemeval_s.json` and its like), with whole haystacks;
and our `longmemeval_evidence.jsonl`, with the evidence turns only. Some published files have several haystack
turns marked `has_answer`; that is the evidence there.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from memserver_evals.data.reading import Record, Text, read_either

QuestionType = Literal[
    "single-session-user",
    "single-session-assistant",
    "single-session-preference",
    "multi-session",
    "temporal-reasoning",
    "knowledge-update",
]
QUESTION_TYPES: tuple[QuestionType, ...] = get_args(QuestionType)
_WEEKDAY = re.compile(r"\s*\([A-Za-z]{3}\)\s*")


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """What the user or the assistant said; `evidence` if the answer is in it."""

    role: Literal["user", "assistant"]
    text: str
    evidence: bool = False


@dataclass(frozen=True, slots=True)
class ChatSession:
    id: str
    began: datetime
    turns: tuple[ChatTurn, ...]


@dataclass(frozen=True, slots=True)
class LongMemQuestion:
    """A question and the chats before it.

    Attributes:
        id: as published.
        question_type: one of six.
        abstention: it can't be answered from the chats, and saying so is right; `answers` then explains why.
        question: what the user asks.
        asked_at: when.
        answers: what is right; for `single-session-preference` what the user would like of an answer.
        sessions: oldest first.
        evidence_sessions: ids of the sessions with the answer.
        whole: the haystack is there, and not the evidence alone.
    """

    id: str
    question_type: QuestionType
    abstention: bool
    question: str
    asked_at: datetime
    answers: tuple[str, ...]
    sessions: tuple[ChatSession, ...]
    evidence_sessions: tuple[str, ...]
    whole: bool


class _Turn(Record):
    role: Literal["user", "assistant"]
    content: str
    has_answer: bool | None = None


class _Published(Record):
    question_id: Text
    question_type: QuestionType
    question: Text
    question_date: Text
    answer: str | int | float
    answer_session_ids: tuple[str, ...] = ()
    haystack_dates: tuple[str, ...]
    haystack_session_ids: tuple[str, ...]
    haystack_sessions: tuple[tuple[_Turn, ...], ...] = Field(min_length=1)

    @field_validator("answer")
    @classmethod
    def _there_is_an_answer(cls, answer: str | int | float) -> str | int | float:
        if not str(answer).strip():
            raise ValueError("it is empty")
        return answer

    @model_validator(mode="after")
    def _as_many_of_each(self) -> Self:
        read_date(self.question_date)
        for date in self.haystack_dates:
            read_date(date)
        if not (
            len(self.haystack_dates)
            == len(self.haystack_session_ids)
            == len(self.haystack_sessions)
        ):
            raise ValueError(
                "haystack_dates, haystack_session_ids and haystack_sessions differ in length"
            )
        return self


def read_longmemeval(path: Path) -> list[LongMemQuestion]:
    """Read the published format, a JSON list or JSON Lines. Raises BadData."""
    return [
        LongMemQuestion(
            row.question_id,
            row.question_type,
            row.question_id.endswith("_abs"),
            row.question,
            read_date(row.question_date),
            (str(row.answer),),
            _in_order(
                ChatSession(
                    name,
                    read_date(date),
                    tuple(
                        ChatTurn(turn.role, turn.content, bool(turn.has_answer))
                        for turn in turns
                        if turn.content.strip()
                    ),
                )
                for name, date, turns in zip(
                    row.haystack_session_ids,
                    row.haystack_dates,
                    row.haystack_sessions,
                    strict=True,
                )
            ),
            row.answer_session_ids,
            whole=True,
        )
        for row in read_either(path, _Published, key=lambda row: row.question_id)
    ]


class _EvidenceTurn(Record):
    role: Literal["user", "assistant"]
    content: Text


class _EvidenceSession(Record):
    date: Text
    turns: tuple[_EvidenceTurn, ...]


class _EvidenceOnly(Record):
    id: Text
    question_type: QuestionType
    abstention: bool
    question: Text
    question_date: Text
    answer: tuple[Text | int | float, ...] = Field(min_length=1)
    answer_session_ids: tuple[str, ...] = ()
    evidence_sessions: tuple[_EvidenceSession, ...]

    @model_validator(mode="after")
    def _dates_are_dates(self) -> Self:
        read_date(self.question_date)
        for session in self.evidence_sessions:
            read_date(session.date)
        return self


def read_longmemeval_evidence(path: Path) -> list[LongMemQuestion]:
    """Read our format, `longmemeval_evidence.jsonl`. Raises BadData."""
    return [
        LongMemQuestion(
            row.id,
            row.question_type,
            row.abstention,
            row.question,
            read_date(row.question_date),
            tuple(str(answer) for answer in row.answer),
            _in_order(
                ChatSession(
                    f"{row.id}_evidence_{number}",
                    read_date(session.date),
                    tuple(
                        ChatTurn(turn.role, turn.content, evidence=True) for turn in session.turns
                    ),
                )
                for number, session in enumerate(row.evidence_sessions)
            ),
            tuple(f"{row.id}_evidence_{number}" for number in range(len(row.evidence_sessions))),
            whole=False,
        )
        for row in read_either(path, _EvidenceOnly, key=lambda row: row.id)
    ]


def _in_order(sessions: Iterable[ChatSession]) -> tuple[ChatSession, ...]:
    return tuple(sorted((each for each in sessions if each.turns), key=lambda each: each.began))


def read_date(text: str) -> datetime:
    """`2023/04/10 (Mon) 23:07`, or an ISO date; UTC where no zone is said. Raises ValueError."""
    plain = _WEEKDAY.sub(" ", text).strip().replace("/", "-")
    try:
        when = datetime.fromisoformat(plain)
    except ValueError:
        raise ValueError(f"{text!r} is no time like '2023/04/10 (Mon) 23:07'") from None
    return when if when.tzinfo else when.replace(tzinfo=UTC)
