"""Counting tokens: exactly from a tokenizer file, or about.

Owns the counts of texts. Leaves those of an endpoint to `endpoint_tokenizer`, and to the model what its
chat template adds around a message.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tokenizers import Tokenizer
from typing_extensions import override

from memserver.errors import SetupError
from memserver.llm.estimate import estimate
from memserver.text import clean

_TOKENIZER_HINT = (
    "MEMSERVER_LLM_TOKENIZER or MEMSERVER_EMBEDDING_TOKENIZER names the file, or its folder."
)
_INLINE_CHARACTERS = 20_000
"""Up to here tokenizing takes a few milliseconds; more goes to a thread."""


class TokenCounter(Protocol):
    """Counts the tokens of texts, special tokens around them not included."""

    @property
    def is_exact(self) -> bool:
        """Whether the latest counts are the model's own tokens, and no estimate."""
        return True

    async def count(self, texts: Sequence[str]) -> list[int]:
        """Count each text."""
        ...

    async def aclose(self) -> None:
        """Give back connections."""
        ...


class Estimated(TokenCounter):
    """About as many tokens as common tokenizers make, rather more: see `estimate`."""

    @property
    @override
    def is_exact(self) -> bool:
        return False

    @override
    async def count(self, texts: Sequence[str]) -> list[int]:
        if sum(map(len, texts)) <= _INLINE_CHARACTERS:
            return [estimate(text) for text in texts]
        return await asyncio.to_thread(lambda: [estimate(text) for text in texts])

    @override
    async def aclose(self) -> None:
        return None


class TokenizerFile(TokenCounter):
    """Counts with the tokenizer.json of a model's folder, read at the first count."""

    def __init__(self, path: Path) -> None:
        self._path = path / "tokenizer.json" if path.is_dir() else path
        self._tokenizer: Tokenizer | None = None

    @override
    async def count(self, texts: Sequence[str]) -> list[int]:
        """Count each text.

        Raises:
            SetupError: there is no such file, or it is no tokenizer.
        """
        tokenizer = self._tokenizer
        if tokenizer is None:
            tokenizer = await asyncio.to_thread(self._load)
        readable = [clean(text) for text in texts]
        if sum(map(len, readable)) <= _INLINE_CHARACTERS:
            return _counts(tokenizer, readable)
        return await asyncio.to_thread(_counts, tokenizer, readable)

    @override
    async def aclose(self) -> None:
        return None

    def _load(self) -> Tokenizer:
        try:
            text = self._path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            # Whoever posts a message may read this, so it says nothing of where the file is.
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise SetupError(
                f"The tokenizer {self._path.name} can't be read: {why}.", hint=_TOKENIZER_HINT
            ) from error
        try:
            tokenizer = Tokenizer.from_str(text)
        except Exception as error:
            raise SetupError(
                f"{self._path.name} is no tokenizer.json: {error}", hint=_TOKENIZER_HINT
            ) from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        return tokenizer


class Remembered(TokenCounter):
    """Another counter's counts of the texts used last: a prompt's head is the same turn after turn."""

    def __init__(self, inner: TokenCounter, *, texts: int = 4096) -> None:
        """Make it.

        Args:
            inner: counts what is not known yet; closed with this one.
            texts: how many are remembered.
        """
        self._inner = inner
        self._most = texts
        self._known: OrderedDict[bytes, int] = OrderedDict()

    @property
    @override
    def is_exact(self) -> bool:
        return self._inner.is_exact

    @override
    async def count(self, texts: Sequence[str]) -> list[int]:
        """Count each text. Raises what the inner counter raises."""
        keys = [_key(text) for text in texts]
        found = {key: self._known[key] for key in keys if key in self._known}
        unknown = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        counts = await self._inner.count(list(unknown.values())) if unknown else []
        found |= dict(zip(unknown, counts, strict=True))
        self._known |= found  # again: another count may have dropped some meanwhile
        for key in keys:
            self._known.move_to_end(key)
        while len(self._known) > self._most:
            self._known.popitem(last=False)
        return [found[key] for key in keys]

    def known(self, text: str) -> int | None:
        """The count of a text that was counted lately; None for any other."""
        return self._known.get(_key(text))

    @override
    async def aclose(self) -> None:
        await self._inner.aclose()


def _counts(tokenizer: Tokenizer, texts: list[str]) -> list[int]:
    return [len(found.ids) for found in tokenizer.encode_batch(texts, add_special_tokens=False)]


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=16).digest()
