"""LoCoMo as published (snap-research/locomo, arXiv 2402.17753): long conversations of two people, questions in five categories."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from memserver_evals.data.reading import Record, Text, read_either

CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
"""What the numbers mean, by the code that was published with the data. The paper's own list is in another order."""
ADVERSARIAL = 5
_SESSION = re.compile(r"session_(\d+)")
_WHEN = "%I:%M %p on %d %B, %Y"


class LocomoTurn(Record):
    """What somebody said, perhaps with a picture, of which there is only what it shows."""

    speaker: Text
    dia_id: Text
    text: str
    blip_caption: str | None = None

    @property
    def shown(self) -> str:
        if not self.blip_caption:
            return self.text
        return f"{self.text} [shows a picture: {self.blip_caption}]".lstrip()


@dataclass(frozen=True, slots=True)
class LocomoSession:
    number: int
    began: datetime
    turns: tuple[LocomoTurn, ...]


@dataclass(frozen=True, slots=True)
class LocomoQuestion:
    """A question; `answer` is empty for adversarial ones, `trap` what they want to be believed."""

    id: str
    question: str
    answer: str
    trap: str
    category: int
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LocomoConversation:
    id: str
    speakers: tuple[str, str]
    sessions: tuple[LocomoSession, ...]
    questions: tuple[LocomoQuestion, ...]


class _Question(Record):
    question: Text
    answer: str | int | float | None = None
    adversarial_answer: str | int | float | None = None
    category: int = Field(ge=1, le=5)
    evidence: tuple[str, ...]

    @model_validator(mode="after")
    def _has_an_answer(self) -> Self:
        if self.category != ADVERSARIAL and (self.answer is None or not str(self.answer).strip()):
            raise ValueError("there is no answer")
        return self


class _Conversation(Record):
    sample_id: Text
    qa: tuple[_Question, ...] = Field(min_length=1)
    conversation: dict[str, Any]

    @model_validator(mode="after")
    def _sessions_are_sessions(self) -> Self:
        _sessions(self.conversation)
        return self


def read_locomo(path: Path) -> list[LocomoConversation]:
    """Read `locomo10.json`. Raises BadData.

    Evidence is kept as far as it names a turn that there is: a few entries of the published file are broken
    (`D8:6; D9:17` in one string, `D:11:26`); joined ones are taken apart.
    """
    return [_read(row) for row in read_either(path, _Conversation, key=lambda row: row.sample_id)]


def _read(row: _Conversation) -> LocomoConversation:
    sessions = _sessions(row.conversation)
    known = {turn.dia_id for session in sessions for turn in session.turns}
    questions = []
    for number, asked in enumerate(row.qa):
        adversarial = asked.category == ADVERSARIAL
        trap = asked.adversarial_answer if asked.adversarial_answer is not None else asked.answer
        named = re.findall(r"D\d+:\d+", " ".join(asked.evidence))
        questions.append(
            LocomoQuestion(
                f"{row.sample_id}_q{number:03}",
                asked.question,
                "" if adversarial else str(asked.answer).strip(),
                str(trap).strip() if adversarial and trap is not None else "",
                asked.category,
                tuple(dict.fromkeys(name for name in named if name in known)),
            )
        )
    speakers = (row.conversation["speaker_a"], row.conversation["speaker_b"])
    return LocomoConversation(row.sample_id, speakers, sessions, tuple(questions))


def _sessions(conversation: dict[str, Any]) -> tuple[LocomoSession, ...]:
    """The sessions that have turns, in order. Raises ValueError."""
    for name in ("speaker_a", "speaker_b"):
        if not isinstance(conversation.get(name), str):
            raise ValueError(f"conversation.{name}: there is no such name")
    found = []
    seen: set[str] = set()
    for name, value in conversation.items():
        if (number := _SESSION.fullmatch(name)) and value:
            session = LocomoSession(int(number[1]), _began(conversation, name), _turns(name, value))
            for turn in session.turns:
                if turn.dia_id in seen:
                    raise ValueError(
                        f"conversation.{name}: {turn.dia_id!r} is the dia_id of two turns"
                    )
                seen.add(turn.dia_id)
            found.append(session)
    if not found:
        raise ValueError("conversation: there are no sessions in it")
    return tuple(sorted(found, key=lambda session: session.number))


def _began(conversation: dict[str, Any], name: str) -> datetime:
    given = conversation.get(f"{name}_date_time")
    try:
        return datetime.strptime(str(given).strip(), _WHEN).replace(tzinfo=UTC)
    except ValueError:
        what = f"{given!r} is no time like '1:56 pm on 8 May, 2023'"
        raise ValueError(f"conversation.{name}_date_time: {what}") from None


def _turns(name: str, value: object) -> tuple[LocomoTurn, ...]:
    try:
        return tuple(TypeAdapter(list[LocomoTurn]).validate_python(value, strict=True))
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in fault["loc"])
        raise ValueError(f"conversation.{name}{place}: {fault['msg']}") from None
