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
from typing import Annotated, Literal, Self, get_args

from pydantic import BeforeValidator, Field, field_validator, model_validator

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
    id: str  # as published
    question_type: QuestionType  # one of six
    # it can't be answered from the chats, and saying so is right; `answers` then explains why
    abstention: bool
    question: str  # what the user asks
    asked_at: datetime  # when
    # what is right; for `single-session-preference` what the user would like of an answer
    answers: tuple[str, ...]
    sessions: tuple[ChatSession, ...]  # oldest first
    evidence_sessions: tuple[str, ...]  # ids of the sessions with the answer
    whole: bool  # the haystack is there, and not the evidence alone


def read_date(text: str) -> datetime:
    """`2023/04/10 (Mon) 23:07`, or an ISO date; UTC where no zone is said. Raises ValueError."""
    plain = _WEEKDAY.sub(" ", text).strip().replace("/", "-")
    try:
        when = datetime.fromisoformat(plain)
    except ValueError:
        raise ValueError(f"{text!r} is no time like '2023/04/10 (Mon) 23:07'") from None
    return when if when.tzinfo else when.replace(tzinfo=UTC)


When = Annotated[datetime, BeforeValidator(read_date)]


class _Turn(Record):
    role: Literal["user", "assistant"]
    content: str
    has_answer: bool | None = None


class _Published(Record):
    question_id: Text
    question_type: QuestionType
    question: Text
    question_date: When
    answer: str | int | float
    answer_session_ids: tuple[str, ...] = ()
    haystack_dates: tuple[When, ...]
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
        names, dates = self.haystack_session_ids, self.haystack_dates
        if not len(dates) == len(names) == len(self.haystack_sessions):
            raise ValueError(
                "haystack_dates, haystack_session_ids and haystack_sessions differ in length"
            )
        return self

    def read(self) -> LongMemQuestion:
        said = [
            tuple(
                ChatTurn(turn.role, turn.content, bool(turn.has_answer))
                for turn in turns
                if turn.content.strip()
            )
            for turns in self.haystack_sessions
        ]
        sessions = map(ChatSession, self.haystack_session_ids, self.haystack_dates, said)
        return LongMemQuestion(
            self.question_id,
            self.question_type,
            self.question_id.endswith("_abs"),
            self.question,
            self.question_date,
            (str(self.answer),),
            _in_order(sessions),
            self.answer_session_ids,
            whole=True,
        )


class _EvidenceTurn(Record):
    role: Literal["user", "assistant"]
    content: Text


class _EvidenceSession(Record):
    date: When
    turns: tuple[_EvidenceTurn, ...]


class _EvidenceOnly(Record):
    id: Text
    question_type: QuestionType
    abstention: bool
    question: Text
    question_date: When
    answer: tuple[Text | int | float, ...] = Field(min_length=1)
    answer_session_ids: tuple[str, ...] = ()
    evidence_sessions: tuple[_EvidenceSession, ...]

    def read(self) -> LongMemQuestion:
        sessions = [
            ChatSession(
                f"{self.id}_evidence_{number}",
                session.date,
                tuple(ChatTurn(turn.role, turn.content, evidence=True) for turn in session.turns),
            )
            for number, session in enumerate(self.evidence_sessions)
        ]
        return LongMemQuestion(
            self.id,
            self.question_type,
            self.abstention,
            self.question,
            self.question_date,
            tuple(map(str, self.answer)),
            _in_order(sessions),
            tuple(session.id for session in sessions),
            whole=False,
        )


def read_longmemeval(path: Path) -> list[LongMemQuestion]:
    """Read the published format, a JSON list or JSON Lines. Raises BadData."""
    return [row.read() for row in read_either(path, _Published, key=lambda row: row.question_id)]


def read_longmemeval_evidence(path: Path) -> list[LongMemQuestion]:
    """Read our format, `longmemeval_evidence.jsonl`. Raises BadData."""
    return [row.read() for row in read_either(path, _EvidenceOnly, key=lambda row: row.id)]


def _in_order(sessions: Iterable[ChatSession]) -> tuple[ChatSession, ...]:
    return tuple(sorted((each for each in sessions if each.turns), key=lambda each: each.began))
