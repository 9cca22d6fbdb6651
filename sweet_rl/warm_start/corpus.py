"""The corpus: conversations and prose written out for memserver, with questions about them.

A conversation is a text file that people can read and change:

    topic: bees on a roof
    user: Marta Quill
    assistant: Oren Vale

    == 2025-03-04 19:20
    user: My sister Ines has moved to Tromsø, and now the hives are all mine to look after.
    note: Sister: Ines, lives in Tromsø
    assistant: …

    == questions
    ? What did you want to call the second queen?
    = Ottoline
    > I think I'll call the second queen Ottoline, after my great-aunt.

`note:` follows a turn of the user and is what a good memory writes down of it; `note: old -> new` changes
an earlier note. A question is what the user asks weeks later: `=` is the answer, word for word from `>`,
the sentence that holds it. `kind:` after a question names one that is not a plain fact (`KINDS`).

An aside has the same form: what a person mentions in passing to an agent, whose name in it is `agent`.
The folder's README is its data card.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, NoReturn, cast
from zlib import crc32

CORPUS = Path(__file__).parent / "data" / "corpus"
AGENT = "agent"
"""The name of the other side in an aside."""
Side = Literal["train", "validation", "test"]
Speaker = Literal["user", "assistant"]
KINDS = ("fact", "update", "date", "retracted", "unanswerable", "premise")
WITHOUT_SPAN = ("date", "retracted", "unanswerable", "premise")
"""Kinds whose answer is a reply in own words, not a span of the sentence."""


class CorpusError(ValueError):
    """A file of the corpus breaks its format; the message names the file and the line."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one side said at a time, and the notes that a good memory takes of it."""

    speaker: Speaker
    text: str
    session: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CorpusQuestion:
    text: str  # the question, as the user asks it
    answer: str  # a span of `evidence`, or a reply in own words for the kinds `WITHOUT_SPAN`
    evidence: str  # the sentence that answers it; empty for what was never said
    kind: str  # one of `KINDS`


@dataclass(frozen=True, slots=True)
class Written:
    name: str
    topic: str
    user: str
    assistant: str
    sessions: tuple[datetime, ...]
    turns: tuple[Turn, ...]
    questions: tuple[CorpusQuestion, ...]

    @property
    def side(self) -> Side:
        """Conversations of a topic are on one side, so that no test topic was ever trained on."""
        return side_of(self.topic)

    def place(self, question: CorpusQuestion) -> int | None:
        found = [n for n, turn in enumerate(self.turns) if question.evidence in turn.text]
        return found[-1] if question.evidence and found else None


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage of invented encyclopaedic prose; those of a group are about things alike."""

    group: str
    title: str
    text: str
    questions: tuple[CorpusQuestion, ...]

    @property
    def side(self) -> Side:
        return side_of(self.group)


def side_of(key: str) -> Side:
    """Eight of ten groups are for training, one each for choosing between models and for testing."""
    share = crc32(key.encode()) % 10
    return "test" if share == 0 else "validation" if share == 1 else "train"


def conversations(folder: Path = CORPUS / "conversations") -> list[Written]:
    return [read_conversation(path) for path in sorted(folder.glob("*.txt"))]


def asides(folder: Path = CORPUS / "asides") -> list[Written]:
    return [read_conversation(path) for path in sorted(folder.glob("*.txt"))]


def passages(folder: Path = CORPUS / "passages") -> list[Passage]:
    return [each for path in sorted(folder.glob("*.txt")) for each in read_passages(path)]


def shelves(side: Side, folder: Path = CORPUS / "passages") -> list[list[Passage]]:
    groups = [list(read_passages(path)) for path in sorted(folder.glob("*.txt"))]
    return [group for group in groups if group and group[0].side == side]


def read_conversation(path: Path) -> Written:
    reader = _Lines(path)
    head = {key: reader.field(key) for key in ("topic", "user", "assistant")}
    sessions: list[datetime] = []
    turns: list[Turn] = []
    for key, value in reader:
        if key == "==" and value == "questions":
            break
        if key == "==":
            sessions.append(reader.time(value))
        elif key == "note" and turns and turns[-1].speaker == "user":
            last = turns.pop()
            turns.append(Turn("user", last.text, last.session, (*last.notes, value)))
        elif key in {"user", "assistant"} and sessions:
            turns.append(Turn(cast("Speaker", key), value, len(sessions) - 1))
        else:
            reader.fail(f"{key} can't stand here")
    questions = tuple(_questions(reader))
    written = Written(
        path.stem, **head, sessions=tuple(sessions), turns=tuple(turns), questions=questions
    )
    for question in questions:
        _check(question, [turn.text for turn in turns], reader)
    return written


def read_passages(path: Path) -> Iterator[Passage]:
    """The passages of one file, which is one group: `title:`, `text:`, then questions, repeated."""
    reader = _Lines(path)
    while reader.more():
        title, text = reader.field("title"), reader.field("text")
        questions = tuple(_questions(reader))
        for question in questions:
            _check(question, [text], reader)
        yield Passage(path.stem, title, text, questions)


def _questions(reader: "_Lines") -> Iterator[CorpusQuestion]:
    while reader.more() and reader.peek() == "?":
        text, answer, evidence, kind = reader.field("?"), reader.field("="), "", "fact"
        if reader.more() and reader.peek() == ">":
            evidence = reader.field(">")
        if reader.more() and reader.peek() == "kind":
            kind = reader.field("kind")
        yield CorpusQuestion(text, answer, evidence, kind)
    if reader.more() and reader.peek() != "title":
        reader.fail(f"a question was expected, not {reader.peek()}")


def _check(question: CorpusQuestion, texts: Sequence[str], reader: "_Lines") -> None:
    where = f"question {question.text!r}"
    if question.kind not in KINDS:
        reader.fail(f"{where}: kind {question.kind} is none of {', '.join(KINDS)}")
    if not question.evidence and question.kind != "unanswerable":
        reader.fail(f"{where}: it needs its sentence")
    if question.evidence and sum(question.evidence in text for text in texts) != 1:
        reader.fail(f"{where}: its sentence must stand, word for word, in exactly one text")
    if question.kind not in WITHOUT_SPAN and question.answer not in question.evidence:
        reader.fail(f"{where}: the answer {question.answer!r} must stand in the sentence")


class _Lines:
    _LINE = re.compile(r"(==|\?|=|>|[a-z]+:) +(\S.*)")

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = enumerate(path.read_text("utf-8").splitlines(), 1)
        self._lines = [(number, line.strip()) for number, line in lines if line.strip()]
        self._next = 0

    def more(self) -> bool:
        return self._next < len(self._lines)

    def peek(self) -> str:
        return self._read()[0]

    def field(self, key: str) -> str:
        if not self.more() or self.peek() != key:
            self.fail(f"{key} was expected")
        value = self._read()[1]
        self._next += 1
        return value

    def __iter__(self) -> Iterator[tuple[str, str]]:
        while self.more():
            key, value = self._read()
            self._next += 1
            yield key, value

    def time(self, text: str) -> datetime:
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            self.fail(f"{text} is no time")

    def fail(self, why: str) -> NoReturn:
        number = self._lines[min(self._next, len(self._lines) - 1)][0] if self._lines else 0
        raise CorpusError(f"{self._path.name}, about line {number}: {why}.")

    def _read(self) -> tuple[str, str]:
        found = self._LINE.fullmatch(self._lines[self._next][1])
        if found is None:
            self.fail("a line is KEY: VALUE, == TIME, ? QUESTION, = ANSWER or > SENTENCE")
        return found[1].removesuffix(":"), found[2]
