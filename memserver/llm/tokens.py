"""Counters of tokens: the protocol, estimates, and what was counted lately."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

from typing_extensions import override

from memserver.llm.estimate import estimate

_INLINE_CHARACTERS = 20_000
"""Up to here estimating takes a few milliseconds; more goes to a thread."""


_Key = tuple[int, int]


class TokenCounter(Protocol):
    """Counts the tokens of texts, special tokens around them not included."""

    @property
    def is_exact(self) -> bool:
        """Whether the latest counts are the model's own tokens, and no estimate."""
        return True

    async def count(self, texts: Sequence[str]) -> list[int]: ...

    async def aclose(self) -> None: ...


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


class Remembered(TokenCounter):
    """Another counter's counts of the texts used last: a prompt's head is the same turn after turn."""

    def __init__(self, inner: TokenCounter, *, texts: int = 4096) -> None:
        self._inner = inner
        self._most = texts
        self._known: OrderedDict[_Key, int] = OrderedDict()

    @property
    @override
    def is_exact(self) -> bool:
        return self._inner.is_exact

    @override
    async def count(self, texts: Sequence[str]) -> list[int]:
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


def _key(text: str) -> _Key:
    """As good as the text, which may be long; Python draws the hash's key, so that nobody can make two alike."""
    return hash(text), len(text)
