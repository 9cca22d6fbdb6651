"""No model and no memory: a rule that finds the rarest words of the question, and copies from there.

What it reaches is what word overlap alone is worth; a system below it has not used what it knows.
"""

import re
from collections import defaultdict
from collections.abc import AsyncIterator, Hashable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from math import log

from typing_extensions import override

from memserver_evals.scoring.text import ANSWER_WORDS, first_words, normalise
from memserver_evals.task import Conversation, Found, Library, Material, Reply, Utterance

_SENTENCE = re.compile(r"(?<=[.!?])\s+")


@dataclass(frozen=True, slots=True)
class _Place:
    """Something that can be copied; `can_answer` is False for what only counts for how rare a word is."""

    text: str
    found: Found
    can_answer: bool = True


@dataclass
class _Index:
    places: Sequence[_Place]
    by_word: dict[str, list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.by_word = defaultdict(list)
        for number, place in enumerate(self.places):
            for word in dict.fromkeys(normalise(place.text).split()):
                self.by_word[word].append(number)

    def best(self, question: str) -> _Place | None:
        """The place whose words of the question are the rarest in sum; of equal ones the first."""
        worth: dict[int, float] = defaultdict(float)
        for word in dict.fromkeys(normalise(question).split()):
            numbers = self.by_word.get(word, ())
            for number in numbers:
                if self.places[number].can_answer:
                    worth[number] += log(len(self.places) / len(numbers))
        if not worth:
            return None
        return self.places[min(worth, key=lambda number: (-worth[number], number))]


class CopyingSystem:
    name = "copying"

    def __init__(self) -> None:
        self._made: dict[Hashable, _Index] = {}

    @asynccontextmanager
    async def begin(self, example_id: str, material: Material) -> AsyncIterator[Conversation]:  # noqa: ARG002 - the protocol's
        """A conversation in which nothing is remembered."""
        yield _Copying([index for index in self._indexes(material) if index.places])

    def _indexes(self, material: Material) -> list[_Index]:
        """Those of the history and of the library; what several examples share is indexed once."""
        key = (material.sessions, material.answers_from)
        if key not in self._made:
            self._made[key] = _Index([_utterance(each, material) for each in material.said])
        indexes = [self._made[key]]
        if (library := material.library) is not None and not library.shared:
            indexes.append(_Index(_sentences(library)))
        elif library is not None:
            if library.name not in self._made:
                self._made[library.name] = _Index(_sentences(library))
            indexes.append(self._made[library.name])
        return indexes


@dataclass
class _Copying(Conversation):
    indexes: Sequence[_Index]

    @override
    async def say(self, text: str, *, at: datetime | None = None) -> Reply:
        best = next((place for index in self.indexes if (place := index.best(text))), None)
        if best is None:
            return Reply("")
        said = best.found.kind == "utterance"
        text = first_words(best.text, ANSWER_WORDS) if said else best.text
        return Reply(text, found=(best.found,))


def _utterance(utterance: Utterance, material: Material) -> _Place:
    can_answer = material.answers_from in {"anyone", utterance.role}
    return _Place(utterance.text, Found(utterance.id, "utterance", utterance.text), can_answer)


def _sentences(library: Library) -> list[_Place]:
    return [
        _Place(sentence, Found(document.id, "document", document.text))
        for document in library.documents
        for sentence in _SENTENCE.split(document.text)
    ]
