"""Sessions and documents as a prompt shows them, and what of them fits."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from memserver_evals.systems.speaking import Speaker
from memserver_evals.task import Cut, Document, Found, Material, Utterance

AT_ONCE = 64
"""So many pieces are counted together."""


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
    return [utterance_piece(each) for each in material.said if each.text.strip()]


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

    The piece at the edge is left out whole; if not even one fits, it is shown cut. Of thousands only those
    are counted that may fit; what the others would have taken is estimated from their length.
    """
    if not pieces:
        return Fitted((), 0, 0)
    ordered = list(reversed(pieces)) if newest else list(pieces)
    sizes: list[int] = []
    while len(sizes) < len(ordered) and sum(sizes) <= room:
        sizes += await _sizes(speaker, ordered[len(sizes) : len(sizes) + AT_ONCE])
    kept, used = 0, 0
    while kept < len(sizes) and used + sizes[kept] <= room:
        used += sizes[kept]
        kept += 1
    wanted = _wanted(ordered, sizes)
    if not kept and room > 0:
        piece = ordered[0]
        characters = max(1, len(piece.text) * room // sizes[0] - 1)
        return Fitted((Piece(piece.text[:characters], piece.found, piece.at),), room, wanted)
    shown = ordered[:kept]
    return Fitted(tuple(reversed(shown) if newest else shown), used, wanted)


async def fit_cut(speaker: Speaker, pieces: Sequence[Piece], room: int, cut: Cut) -> Fitted:
    """As `fit`, or every piece cut to its share of the room: in tokens, or in so many characters."""
    if cut == "whole" or not pieces:
        return await fit(speaker, pieces, room)
    share = max(room, 0) // len(pieces)
    if not share:
        return Fitted((), 0, _wanted(pieces, await _sizes(speaker, pieces[:AT_ONCE])))
    sizes = await _sizes(speaker, pieces)
    kept: list[Piece] = []
    for piece, size in zip(pieces, sizes, strict=True):
        most = share if cut == "characters" else len(piece.text) * share // size
        if size <= share and cut == "tokens":
            kept.append(piece)
        elif text := piece.text[:most].rstrip():
            kept.append(Piece(text, piece.found, piece.at))
    shown = await _sizes(speaker, kept)
    while sum(shown) > room:  # a cut text can have more tokens than its share of the whole one's
        shown.pop()
        kept.pop()
    return Fitted(tuple(kept), sum(shown), sum(sizes))


async def _sizes(speaker: Speaker, pieces: Sequence[Piece]) -> list[int]:
    return [size + 1 for size in await speaker.count([f"{piece.text}\n" for piece in pieces])]


def _wanted(pieces: Sequence[Piece], sizes: Sequence[int]) -> int:
    """Tokens of all pieces, of which the first were counted."""
    counted = sum(len(piece.text) for piece in pieces[: len(sizes)])
    left = sum(len(piece.text) for piece in pieces[len(sizes) :])
    return sum(sizes) + round(left * sum(sizes) / max(1, counted))
