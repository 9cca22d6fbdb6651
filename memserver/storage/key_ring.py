"""Finds the key of a request, and remembers it for a short while, so that a request costs no statement."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from uuid import UUID

from memserver.storage import api_keys
from memserver.storage.api_keys import KnownKey
from memserver.storage.database import Database

MOST_REMEMBERED = 10_000


class KeyRing:
    """The keys that this process has seen. What changed elsewhere counts here after `seconds` at the latest."""

    def __init__(self, database: Database, seconds: float, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._bound = timedelta(seconds=seconds)
        self._clock = clock
        self._found: dict[bytes, tuple[datetime, KnownKey | None]] = {}
        self._lookups: dict[bytes, asyncio.Task[KnownKey | None]] = {}
        self._looked_for_any: datetime | None = None
        self._created: datetime | None = None
        self._any = False

    async def find(self, secret: str) -> KnownKey | None:
        """The key of a secret, revoked or expired ones too. Raises DatabaseError."""
        if not api_keys.is_secret(secret):
            return None
        digest = api_keys.digest_of(secret)
        at, known = self._found.get(digest, (None, None))
        return known if self._is_fresh(at) else await self._look_up(digest)

    async def any(self, presented: str | None) -> bool:
        """Whether there are keys, so that a request needs one. Once there are, that stays so.

        A `presented` key that looks like one is a reason to look again.
        """
        if self._any:
            return True
        doubtful = presented is not None and api_keys.is_secret(presented)
        if doubtful or self._is_fresh(self._created) or not self._is_fresh(self._looked_for_any):
            now = self._clock()
            async with self._database.across_tenants() as tx:
                self._any = await api_keys.exist(tx)
            self._looked_for_any = now
        return self._any

    def created(self) -> None:
        """A key is being created here: a request needs one as soon as that is committed."""
        self._created = self._clock()

    def revoked(self, key_id: UUID) -> None:
        """A key was revoked here: look at it again when it comes."""
        self._found = {
            digest: (at, known)
            for digest, (at, known) in self._found.items()
            if known is None or known.id != key_id
        }

    def _is_fresh(self, at: datetime | None) -> bool:
        """Whether something was found out not too long ago; a clock that was set back makes it stale."""
        return at is not None and timedelta(0) <= self._clock() - at < self._bound

    async def _look_up(self, digest: bytes) -> KnownKey | None:
        """Ask the database, once for all requests that want to know it now."""
        task = self._lookups.get(digest)
        if task is None:
            task = self._lookups[digest] = asyncio.create_task(self._ask(digest))
            task.add_done_callback(lambda _: self._lookups.pop(digest, None))
        return await asyncio.shield(task)

    async def _ask(self, digest: bytes) -> KnownKey | None:
        now = self._clock()
        async with self._database.across_tenants() as tx:
            known = await api_keys.use(tx, digest)
        if len(self._found) >= MOST_REMEMBERED:
            self._found.clear()
        self._found[digest] = (now, known)
        return known
