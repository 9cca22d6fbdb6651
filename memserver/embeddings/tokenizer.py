"""Counts tokens with a model's tokenizer.json, those included that frame every text."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from memserver.errors import EmbeddingError
from memserver.text import clean

logger = logging.getLogger(__name__)


class TokenizerFile:
    """A tokenizer.json, or the folder with one; read at the first count."""

    def __init__(self, path: Path) -> None:
        self._path = path / "tokenizer.json" if path.is_dir() else path
        self._tokenizer: Tokenizer | None = None

    async def count(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text. Raises EmbeddingError where the file is none."""
        return await asyncio.to_thread(self._count, [clean(text) for text in texts])

    def _count(self, texts: list[str]) -> list[int]:
        if self._tokenizer is None:
            self._tokenizer = self._load()
        return [len(encoding) for encoding in self._tokenizer.encode_batch_fast(texts)]

    def _load(self) -> Tokenizer:
        try:
            tokenizer = Tokenizer.from_str(self._path.read_text(encoding="utf-8"))
        except Exception as error:
            logger.warning("The tokenizer %s can't be read.", self._path, exc_info=error)
            raise EmbeddingError(
                f"The embedder's tokenizer {self._path.name} can't be read; the log says why.",
                hint="Mend MEMSERVER_EMBEDDING_TOKENIZER, or unset it.",
            ) from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer
