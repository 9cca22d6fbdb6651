"""Counts tokens by a model's own tokenizer.json."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from memserver.errors import MemserverError, SetupError
from memserver.text import clean

_INLINE_CHARACTERS = 20_000
"""Up to here tokenizing takes a few milliseconds; more goes to a thread."""


class TokenizerFile:
    """A tokenizer.json, or a model's folder with one, read at the first count."""

    is_exact = True

    def __init__(
        self,
        path: Path,
        *,
        special_tokens: bool = False,
        error: type[MemserverError] = SetupError,
        setting: str = "MEMSERVER_LLM_TOKENIZER",
    ) -> None:
        """With `special_tokens` those that frame every text are counted too.

        `error` is raised where the file is no tokenizer, and names the `setting`.
        """
        self._path = path / "tokenizer.json" if path.is_dir() else path
        self._special_tokens = special_tokens
        self._error = error
        self._setting = setting
        self._tokenizer: Tokenizer | None = None

    async def count(self, texts: Sequence[str]) -> list[int]:
        """Count each text. Raises the error that was given."""
        cleaned = [clean(text) for text in texts]
        if self._tokenizer is None or sum(map(len, cleaned)) > _INLINE_CHARACTERS:
            return await asyncio.to_thread(self._count, cleaned)
        return self._count(cleaned)

    async def aclose(self) -> None:
        return None

    def _count(self, texts: list[str]) -> list[int]:
        if self._tokenizer is None:
            self._tokenizer = self._load()
        found = self._tokenizer.encode_batch_fast(texts, add_special_tokens=self._special_tokens)
        return [len(each.ids) for each in found]

    def _load(self) -> Tokenizer:
        try:
            tokenizer = Tokenizer.from_buffer(self._path.read_bytes())
        except (OSError, ValueError) as error:
            # People who post messages read this, so it says nothing of where the file is.
            why = error.strerror if isinstance(error, OSError) else error
            raise self._error(
                f"The tokenizer {self._path.name} can't be read: {why}.",
                hint=f"{self._setting} names the file, or its folder.",
            ) from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer
