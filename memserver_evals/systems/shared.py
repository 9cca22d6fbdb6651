"""Values that are made once, however many wait for them."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Shared(Generic[K, V]):
    """What was made for each key, the latest so many of them. What failed is made again at the next request."""

    def __init__(self, most: int = 2**31) -> None:
        self._most = most
        self._made: OrderedDict[K, asyncio.Task[V]] = OrderedDict()

    async def get(self, key: K, make: Callable[[], Coroutine[Any, Any, V]]) -> V:
        if key not in self._made:
            self._made[key] = asyncio.create_task(make())
            if len(self._made) > self._most:
                self._made.popitem(last=False)
        making = self._made[key]
        self._made.move_to_end(key)
        try:
            return await asyncio.shield(making)
        finally:
            if making.done() and (making.cancelled() or making.exception() is not None):
                self.forget(key, making)

    def __len__(self) -> int:
        return len(self._made)

    def forget(self, key: K, made: "asyncio.Task[V] | None" = None) -> None:
        """Have it made again; with `made`, only where it is still that."""
        if made is None or self._made.get(key) is made:
            self._made.pop(key, None)
