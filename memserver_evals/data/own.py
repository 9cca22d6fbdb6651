"""Data of one's own: what was said, documents, and questions with their answers.

A file of JSON Lines, or one JSON list; `memserver_evals/README.md` shows it. A record is one history, with one or several
questions on it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, Self

from pydantic import ConfigDict, Field, model_validator

from memserver_evals.data.longmemeval import When
from memserver_evals.data.reading import Record, Text, bad_place, read_either
from memserver_evals.task import Document, Session, Utterance

BEGINNING = datetime(2024, 1, 1, 9, tzinfo=UTC)
"""When a history begins that has no times."""
STEP, DAY = timedelta(minutes=1), timedelta(days=1)
"""Between messages, and between sessions, that have none."""
Answer = Text | int | float


class _Own(Record):
    """A field that isn't known is a mistake here: nobody else's file has others."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class OwnMessage(_Own):
    role: Literal["user", "assistant"]
    content: Text
    at: When | None = None
    id: str = ""
    speaker: str = ""


class OwnSession(_Own):
    messages: tuple[OwnMessage, ...] = Field(min_length=1)
    at: When | None = None


class OwnDocument(_Own):
    text: Text
    id: str = ""
    title: str = ""


class OwnQuestion(_Own):
    question: Text
    answer: Answer | tuple[Answer, ...] | None  # any of several; null: it can't be known
    at: When | None = None
    id: str = ""
    group: str = ""  # what tables group by
    evidence: tuple[str, ...] = ()  # ids of the messages and documents with the answer

    @property
    def golds(self) -> tuple[str, ...]:
        if self.answer is None:
            return ()
        return tuple(map(str, self.answer if isinstance(self.answer, tuple) else (self.answer,)))


class OwnRecord(_Own):
    id: str = ""
    sessions: tuple[OwnSession, ...] = ()
    messages: tuple[OwnMessage, ...] = ()  # instead: one session
    documents: tuple[Text | OwnDocument, ...] = ()
    questions: tuple[OwnQuestion, ...] = ()
    question: Text | None = None  # instead: one question
    answer: Answer | tuple[Answer, ...] | None = None

    @model_validator(mode="after")
    def _one_history(self) -> Self:
        if bool(self.questions) == (self.question is not None):
            raise ValueError("it has questions, or question and answer: one of the two")
        if (self.question is None) == ("answer" in self.model_fields_set):
            raise ValueError("question and answer go together")
        if self.sessions and self.messages:
            raise ValueError("sessions and messages can't both be there")
        return self

    @property
    def asked(self) -> tuple[OwnQuestion, ...]:
        if self.question is None:
            return self.questions
        return (OwnQuestion(question=self.question, answer=self.answer),)


@dataclass(frozen=True, slots=True)
class OwnHistory:
    """A record as it is played."""

    id: str
    sessions: tuple[Session, ...]
    documents: tuple[Document, ...]
    questions: tuple[OwnQuestion, ...]

    @property
    def ended(self) -> datetime | None:
        """When the last thing was said; None where nothing was."""
        return self.sessions[-1].utterances[-1].at if self.sessions else None


def read_own(path: Path) -> list[OwnHistory]:
    """Read a file of one's own. Raises BadData: with the record, and what is wrong in it."""
    found: list[OwnHistory] = []
    for number, record in enumerate(read_either(path, OwnRecord), 1):
        try:
            found.append(_history(record, record.id or str(number)))
        except ValueError as error:
            raise bad_place(path, f"record {number}", str(error)) from error
    ids = [each.id for each in found]
    for number, id_ in enumerate(ids):
        if id_ in ids[:number]:
            raise bad_place(path, f"record {number + 1}", f"{id_!r} is the id of another one, too")
    return found


def _history(record: OwnRecord, id_: str) -> OwnHistory:
    given = record.sessions or ((OwnSession(messages=record.messages),) if record.messages else ())
    sessions = tuple(_sessions(given))
    documents = tuple(
        Document(f"d{number}", each)
        if isinstance(each, str)
        else Document(each.id or f"d{number}", each.text, each.title)
        for number, each in enumerate(record.documents, 1)
    )
    ids = [each.id for session in sessions for each in session.utterances]
    ids += [each.id for each in documents]
    if twice := [each for number, each in enumerate(ids) if each in ids[:number]]:
        raise ValueError(f"{twice[0]!r} is the id of two messages or documents")
    history = OwnHistory(id_, sessions, documents, record.asked)
    for number, asked in enumerate(record.asked, 1):
        if missing := [each for each in asked.evidence if each not in ids]:
            raise ValueError(
                f"question {number}: no message and no document has the id {missing[0]!r}"
            )
        if asked.at and history.ended and asked.at < history.ended:
            raise ValueError(f"question {number} is asked before the last message")
    return history


def _sessions(given: tuple[OwnSession, ...]) -> Iterator[Session]:
    now = BEGINNING - DAY
    number = 0
    for place, session in enumerate(given, 1):
        began = session.at or session.messages[0].at or now + DAY
        utterances: list[Utterance] = []
        for message in session.messages:
            number += 1
            at = message.at or (utterances[-1].at + STEP if utterances else began)
            if (utterances or place > 1) and at < now:
                raise ValueError(f"message m{number} is earlier than the one before")
            now = at
            utterances.append(
                Utterance(
                    message.role, message.content, at, message.speaker, message.id or f"m{number}"
                )
            )
        yield Session(began, tuple(utterances), f"s{place}")
