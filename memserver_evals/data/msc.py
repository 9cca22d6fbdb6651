"""MSC dialogues (Multi-Session Chat): sessions of two people with gaps between, and what is asked about them.

Two formats give the same values: our `msc.jsonl`, with a question about an earlier turn (`dmr`) and the first
utterance of a later session (`opener`); and the published MemGPT/MSC-Self-Instruct. In both, A is the one who is
asked: the part the system plays.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from memserver_evals.data.reading import Record, Text, bad_place, read_either

Side = Literal["A", "B"]
SIDES: tuple[Side, Side] = ("A", "B")
_GAP = re.compile(r"(\d+)\s+(hour|day|week|month|year)s?")
_HOURS = {"hour": 1, "day": 24, "week": 7 * 24, "month": 30 * 24, "year": 365 * 24}


class Line(Record):
    speaker: Side
    text: Text


class Evidence(Record):
    """Where the answer to a question was said: session from 1, turn from 0."""

    session: int = Field(ge=1)
    turn: int = Field(ge=0)
    keyword: Text


class MscQuestion(Record):
    question: Text
    answer: Text
    asker: Side
    answerer: Side
    evidence: Evidence | None = None
    source: str = ""

    @model_validator(mode="after")
    def _two_people(self) -> Self:
        if self.asker == self.answerer:
            raise ValueError("asker and answerer are the same")
        return self


class MscOpener(Record):
    """How a person opened the session after `history_sessions` others."""

    history_sessions: int = Field(ge=1)
    speaker: Side
    gap: Text
    human: Text


class _Line(Record):
    id: Text
    personas: tuple[tuple[Text, ...], tuple[Text, ...]]
    sessions: tuple[tuple[Line, ...], ...] = Field(min_length=1)
    gaps: tuple[Text, ...]
    dmr: MscQuestion | None = None
    opener: MscOpener | None = None

    @field_validator("sessions")
    @classmethod
    def _no_empty_session(cls, sessions: tuple[tuple[Line, ...], ...]) -> Any:  # noqa: ANN401
        for number, session in enumerate(sessions, start=1):
            if not session:
                raise ValueError(f"session {number} is empty")
        return sessions

    @field_validator("gaps")
    @classmethod
    def _gaps_are_times(cls, gaps: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        for gap in gaps:
            as_time(gap)
        if len(gaps) < len(info.data.get("sessions", ())):
            raise ValueError("there are fewer gaps than sessions; one comes after each")
        return gaps

    @model_validator(mode="after")
    def _places_are_there(self) -> Self:
        if self.opener:
            as_time(self.opener.gap)
            if self.opener.history_sessions > len(self.sessions):
                raise ValueError("opener.history_sessions: there are fewer sessions")
        if self.dmr and self.dmr.evidence:
            self._evidence_is_there(self.dmr.evidence)
        return self

    def _evidence_is_there(self, evidence: Evidence) -> None:
        if evidence.session > len(self.sessions):
            raise ValueError(f"dmr.evidence: there is no session {evidence.session}")
        session = self.sessions[evidence.session - 1]
        if evidence.turn >= len(session):
            raise ValueError(f"dmr.evidence: session {evidence.session} has {len(session)} turns")


@dataclass(frozen=True, slots=True)
class Dialogue:
    """Some sessions of A and B."""

    id: str  # unique in its file
    sessions: tuple[tuple[Line, ...], ...]  # oldest first
    # the time between the begin of a session and that of the next, one for each session; the last
    # one ends with the question
    gaps: tuple[timedelta, ...]
    # what each of the two is meant to be, A's first
    personas: tuple[tuple[str, ...], tuple[str, ...]]
    question: MscQuestion | None = None  # asked after the last session
    opener: MscOpener | None = None  # of the session after some of these
    guessed: int = 0  # sessions in which who began was inferred and not said

    def persona(self, side: Side) -> tuple[str, ...]:
        return self.personas[SIDES.index(side)]


def read_msc(path: Path) -> list[Dialogue]:
    """Read our format, `msc.jsonl`. Raises BadData."""
    return [
        Dialogue(
            line.id,
            line.sessions,
            tuple(as_time(gap) for gap in line.gaps[: len(line.sessions)]),
            line.personas,
            line.dmr,
            line.opener,
        )
        for line in read_either(path, _Line, key=lambda line: line.id)
    ]


# --- MemGPT/MSC-Self-Instruct


class _Spoken(Record):
    text: Text
    id: str | None = None


class _Earlier(Record):
    dialog: tuple[_Spoken, ...] = Field(min_length=1)
    time_num: int = Field(ge=0)
    time_unit: Text

    @model_validator(mode="after")
    def _gap_is_a_time(self) -> Self:
        as_time(f"{self.time_num} {self.time_unit}")
        return self


class _About(Record):
    initial_data_id: str | None = None


class _Asked(Record):
    question: Text = Field(alias="B")
    answer: Text = Field(alias="A")


class _SelfInstruct(Record):
    personas: tuple[tuple[str, ...], ...] = ()
    previous_dialogs: tuple[_Earlier, ...] = Field(min_length=1)
    dialog: tuple[_Spoken, ...] = ()
    metadata: _About = _About()
    self_instruct: _Asked
    summary_speaker_1: tuple[tuple[str, ...], ...] | None = None
    summary_speaker_2: tuple[tuple[str, ...], ...] | None = None


_SPEAKERS: dict[str, Side] = {"speaker 1": "A", "speaker 2": "B"}


def read_self_instruct(path: Path, *, with_last: bool = False) -> list[Dialogue]:
    """Read the published format: `previous_dialogs` are sessions 1 to 4, `dialog` is the fifth.

    The question is asked in the fifth session, by B (Speaker 2), of A (Speaker 1). What was said in it before is
    part of the history only `with_last`; then the question comes right after it. The trap: turns of earlier sessions don't say who speaks, and not each session begins
    with Speaker 1. Where a turn has no id, who began is inferred: of the two readings the one is taken in
    which each says more of the words in their own summary and persona; Speaker 1 if there is no difference.

    Raises BadData: with file and line.
    """
    dialogues = []
    ids: dict[str, int] = {}
    for number, row in enumerate(read_either(path, _SelfInstruct)):
        name = row.metadata.initial_data_id or f"row_{number}"
        if name in ids:
            what = f"metadata.initial_data_id {name!r} is that of record {ids[name]} too"
            raise bad_place(path, f"record {number + 1}", what)
        ids[name] = number + 1
        if with_last and not row.dialog:
            raise bad_place(path, f"record {number + 1}", "dialog: there is no fifth session")
        dialogues.append(_dialogue(name, row, with_last=with_last))
    return dialogues


def _dialogue(name: str, row: _SelfInstruct, *, with_last: bool) -> Dialogue:
    sessions, guessed = [], 0
    spoken = [earlier.dialog for earlier in row.previous_dialogs]
    gaps = [as_time(f"{each.time_num} {each.time_unit}") for each in row.previous_dialogs]
    if with_last:
        spoken, gaps = [*spoken, row.dialog], [*gaps, timedelta(0)]
    for place, turns in enumerate(spoken):
        named = [_SPEAKERS.get((turn.id or "").lower()) for turn in turns]
        if all(named):
            sides: Sequence[Side | None] = named
        else:
            guessed += 1
            sides = _alternating(_who_began(turns, row, place), len(turns))
        sessions.append(
            tuple(
                Line(speaker=side or "A", text=turn.text)
                for side, turn in zip(sides, turns, strict=True)
            )
        )
    personas = (*row.personas, (), ())
    return Dialogue(
        name,
        tuple(sessions),
        tuple(gaps),
        (tuple(personas[0]), tuple(personas[1])),
        MscQuestion(
            question=row.self_instruct.question,
            answer=row.self_instruct.answer,
            asker="B",
            answerer="A",
            source="MemGPT/MSC-Self-Instruct",
        ),
        guessed=guessed,
    )


def _alternating(first: Side, turns: int) -> list[Side]:
    start = SIDES.index(first)
    return [SIDES[(start + turn) % 2] for turn in range(turns)]


def _who_began(turns: Sequence[_Spoken], row: _SelfInstruct, place: int) -> Side:
    about = [
        _of_session(row.summary_speaker_1, place) | _of_session(row.personas, 0),
        _of_session(row.summary_speaker_2, place) | _of_session(row.personas, 1),
    ]
    shared = about[0] & about[1]
    own = [words - shared for words in about]
    said = [_words(" ".join(turn.text for turn in turns[start::2])) for start in (0, 1)]
    straight = len(said[0] & own[0]) + len(said[1] & own[1])
    crossed = len(said[0] & own[1]) + len(said[1] & own[0])
    return "B" if crossed > straight else "A"


def _of_session(texts: Sequence[Sequence[str]] | None, place: int) -> frozenset[str]:
    return _words(" ".join(texts[place])) if texts and place < len(texts) else frozenset()


def _words(text: str) -> frozenset[str]:
    """Its words of four letters and more: those are rarely mere grammar."""
    return frozenset(re.findall(r"\w{4,}", text.lower()))


def as_time(gap: str) -> timedelta:
    """`3 days` as a time. Raises ValueError."""
    found = _GAP.fullmatch(gap.strip().lower())
    if not found:
        raise ValueError(f"{gap!r} is no time like '3 days'")
    return timedelta(hours=int(found[1]) * _HOURS[found[2]])
