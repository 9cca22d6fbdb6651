"""Vectors of texts, kept in a folder of the user's: embedding costs minutes of CPU, reading them seconds."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from memserver.embeddings.base import Embedder, Vector

BATCH = 64


async def vectors_of(
    texts: Sequence[str], embedder: Embedder, folder: Path | None, console: Console, what: str
) -> list[Vector]:
    """A vector for each text, from the folder if it has them, else embedded and put there."""
    file = None if folder is None else folder / f"{_key(texts, embedder)}.npy"
    if file is not None and file.exists():
        kept: list[Vector] = np.load(file).tolist()
        return kept
    # Texts of about the same length make the fullest batches.
    order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
    found: dict[int, Vector] = {}
    starts = range(0, len(order), BATCH)
    for start in track(starts, f"embedding {what}", console=console, transient=True):
        batch = order[start : start + BATCH]
        vectors = await embedder.embed([texts[number] for number in batch])
        found.update(zip(batch, vectors, strict=True))
    made = [found[number] for number in range(len(texts))]
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file, _array(made))
    return made


def _array(vectors: list[Vector]) -> Any:  # noqa: ANN401 - numpy's types are long
    return np.asarray(vectors, dtype=np.float32)


def _key(texts: Sequence[str], embedder: Embedder) -> str:
    digest = hashlib.sha256(embedder.model.encode())
    for text in texts:
        digest.update(b"\0" + text.encode())
    return digest.hexdigest()[:24]
