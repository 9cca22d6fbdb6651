"""Vectors that are kept between runs, so that a text is embedded once, however many systems and runs need it."""

import asyncio
import hashlib
import math
import sqlite3
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path

from typing_extensions import override

from memserver.embeddings.base import Embedder, Vector
from memserver.embeddings.batching import BatchingEmbedder

_DAMAGED = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


class KeptEmbedder(BatchingEmbedder):
    """Keeps vectors in a file of SQLite, which several processes may share.

    What can't be read there is made again, and a file that is damaged is replaced.
    """

    def __init__(self, inner: Embedder, file: Path, made_by: str = "") -> None:
        """`made_by`: what vectors depend on, besides the text and the model's name."""
        super().__init__(inner)
        self._file = file
        self._made_by = f"{inner.model}\0{made_by}\0"

    @override
    async def embed(self, texts: Sequence[str]) -> list[Vector]:
        keyed = {self._key(text): text for text in texts}
        vectors = await asyncio.to_thread(self._read, keyed)
        missing = {key: text for key, text in keyed.items() if key not in vectors}
        if missing:
            made = await super().embed(list(missing.values()))
            new = {key: array("f", vector) for key, vector in zip(missing, made, strict=True)}
            await asyncio.to_thread(self._keep, new)
            vectors |= new
        found = [vectors[self._key(text)].tolist() for text in texts]
        self.dimension = self.dimension or len(found[0] if found else ())
        return found

    def _key(self, text: str) -> bytes:
        return hashlib.sha256((self._made_by + text).encode(errors="surrogatepass")).digest()

    def _read(self, keys: Mapping[bytes, str]) -> dict[bytes, "array[float]"]:
        found = {}

        def read(file: sqlite3.Connection) -> None:
            for key in keys:
                row = file.execute("SELECT vector FROM vectors WHERE key = ?", (key,)).fetchone()
                if row is not None and (vector := self._vector(row[0])) is not None:
                    found[key] = vector

        self._use(read)
        return found

    def _keep(self, vectors: Mapping[bytes, "array[float]"]) -> None:
        rows = [(key, vector.tobytes()) for key, vector in vectors.items()]
        self._use(
            lambda file: file.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)
        )

    def _vector(self, stored: object) -> "array[float] | None":
        if not isinstance(stored, bytes) or len(stored) % 4:
            return None
        vector = array("f", stored)
        fits = self.dimension in {0, len(vector)} and abs(math.hypot(*vector) - 1) < 0.01
        return vector if fits else None

    def _use(self, work: Callable[[sqlite3.Connection], object]) -> None:
        """Work with the file, as far as that is possible."""
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self._file)) as file, file:
                file.execute("PRAGMA synchronous = OFF")
                file.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector)")
                work(file)
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) in _DAMAGED:
                with suppress(OSError):
                    self._file.unlink()
        except OSError:
            pass
