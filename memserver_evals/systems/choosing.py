"""What a model without memserver gets to see: everything, the newest, a summary, or what is retrieved."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Protocol

from typing_extensions import override

from memserver.memory.summary import Summarizer, SummaryMethod
from memserver.messages import Entry
from memserver.prompts import Prompts
from memserver_evals.systems.history import Piece, all_documents, all_utterances
from memserver_evals.systems.recording import RecordingModel
from memserver_evals.systems.shared import Shared
from memserver_evals.systems.speaking import Speaker
from memserver_evals.systems.vectors import VectorIndex
from memserver_evals.task import Exchange, Found, Material

MOST_FOUND = 50
"""So many of the documents that were retrieved are kept in the record, the best; all are shown that fit."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """What should be in the prompt; whether it fits is seen to later."""

    documents: tuple[Piece, ...] = ()  # best first
    utterances: tuple[Piece, ...] = ()  # oldest first
    summary: str = ""  # in place of the utterances
    found: tuple[Found, ...] = ()  # what was retrieved, best first
    exchanges: tuple[Exchange, ...] = ()  # what choosing asked of the model


class Choice(Protocol):
    async def choose(self, material: Material, question: str) -> Chosen: ...


@dataclass(frozen=True, slots=True)
class Everything(Choice):
    @override
    async def choose(self, material: Material, question: str) -> Chosen:
        return Chosen(tuple(all_documents(material)), tuple(all_utterances(material)))


@dataclass(frozen=True, slots=True)
class Nearest(Choice):
    """The pieces whose vectors are nearest to the question's: plain top-k, by one embedder."""

    index: VectorIndex
    top_k: int = 10

    @override
    async def choose(self, material: Material, question: str) -> Chosen:
        documents = all_documents(material)
        if material.reading is None and material.library is not None:
            wanted = material.documents_shown or self.top_k
            texts = [each.shown for each in material.library.documents]  # as a memory stores them
            name = (material.library.name, len(texts))
            places = await self.index.nearest(name, texts, question, wanted)
            documents = [documents[place] for place in places]
        utterances = all_utterances(material)
        said = [piece.text for piece in utterances]
        near = await self.index.nearest(None, said, question, self.top_k)
        found = [*documents[:MOST_FOUND], *(utterances[place] for place in near)]
        return Chosen(
            tuple(documents),
            tuple(utterances[place] for place in sorted(near)),
            found=tuple(piece.found for piece in found),
        )


@dataclass
class Summarised(Choice):
    """The recursive summary alone, folded as memserver folds it: piece by piece, oldest first.

    By the method "extract" it is made of the history's own sentences, and costs the model nothing.
    """

    speaker: Speaker
    prompts: Prompts
    tokens: int = 512
    method: SummaryMethod = "model"
    _made: Shared[Hashable, tuple[str, tuple[Exchange, ...]]] = field(default_factory=Shared)

    @override
    async def choose(self, material: Material, question: str) -> Chosen:
        summary, exchanges = await self._made.get(
            material.sessions, lambda: self._summarise(material)
        )
        return Chosen(summary=summary, exchanges=exchanges)

    async def _summarise(self, material: Material) -> tuple[str, tuple[Exchange, ...]]:
        model = RecordingModel(self.speaker.model, [])
        pieces = [piece for piece in all_utterances(material) if piece.at is not None]
        messages = [
            Entry(position, "user", piece.text, piece.at, 0)
            for position, piece in enumerate(pieces, 1)
            if piece.at is not None
        ]
        summarizer = Summarizer(model, self.prompts, method=self.method)
        folded = await summarizer.fold("", messages, self.tokens)
        return folded.text, tuple(model.exchanges)
