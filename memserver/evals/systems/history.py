"""Sessions and documents as a prompt shows them, and what of them fits."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from memserver.evals.systems.speaking import Speaker
from memserver.tasks import Document, Found, Material, Utterance


@dataclass(frozen=True, slots=True)
class Piece:
    """One line of a prompt that is shown whole or not at all."""

    text: str
    found: Found
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Fitted:
    """What fits, in the order in which it is shown.

    `wanted` is the tokens that should have been there, `tokens` those that are.
    """

    pieces: tuple[Piece, ...]
    tokens: int
    wanted: int


def utterance_piece(utterance: Utterance) -> Piece:
    """Something that was said, with who said it."""
    speaker = utterance.speaker or ("Assistant" if utterance.role == "assistant" else "User")
    text = " ".join(utterance.text.split())
    found = Found(utterance.id, "utterance", text)
    return Piece(f"{speaker}: {text}", found, utterance.at)


def document_piece(document: Document) -> Piece:
    """A document, with its title and its name, by which an answer can point to it."""
    title = f" ({document.title})" if document.title else ""
    text = f"[{document.id}]{title} {document.text}"
    return Piece(text, Found(document.id, "document", document.text))


def all_utterances(material: Material) -> list[Piece]:
    """All that was said, oldest first."""
    return [
        utterance_piece(utterance)
        for session in material.sessions
        for utterance in session.utterances
        if utterance.text.strip()
    ]


def all_documents(material: Material) -> list[Piece]:
    """The documents that are to be shown where nothing is retrieved."""
    if material.library is None:
        return []
    documents = material.library.documents
    if material.reading is not None:
        by_id = {document.id: document for document in documents}
        documents = tuple(by_id[name] for name in material.reading)
    return [document_piece(document) for document in documents]


def stamp(at: datetime) -> str:
    """A time as a prompt shows it: 2021-05-04 10:30."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M}"


def shown(pieces: Iterable[Piece]) -> list[str]:
    """The pieces' lines; one of another day than that before has the day above it."""
    lines: list[str] = []
    day = ""
    for piece in pieces:
        if piece.at is not None and (now := stamp(piece.at)[:10]) != day:
            day = now
            lines.append(f"({day})")
        lines.append(piece.text)
    return lines


async def fit(
    speaker: Speaker, pieces: Sequence[Piece], room: int, *, newest: bool = False
) -> Fitted:
    """As many pieces as fit into `room` tokens: from the first on, or the newest.

    The piece at the edge is left out whole; if not even one fits, it is shown cut.
    """
    if not pieces:
        return Fitted((), 0, 0)
    sizes = [size + 1 for size in await speaker.count([f"{piece.text}\n" for piece in pieces])]
    total = sum(sizes)
    order = range(len(pieces) - 1, -1, -1) if newest else range(len(pieces))
    kept: list[int] = []
    used = 0
    for index in order:
        if used + sizes[index] > room:
            break
        kept.append(index)
        used += sizes[index]
    if not kept and room > 0:
        index = order[0]
        piece = pieces[index]
        characters = max(1, len(piece.text) * room // sizes[index] - 1)
        return Fitted((Piece(piece.text[:characters], piece.found, piece.at),), room, total)
    return Fitted(tuple(pieces[index] for index in sorted(kept)), used, total)
