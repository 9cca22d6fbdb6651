"""Searching on a streaming replica: only where that has all that the primary had committed when the search began.

So a search finds what was written before it, by whichever process or host. Where the replica is behind that, away,
or cancels a search for what it has to replay, the primary runs it.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypedDict, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import AsyncConnectionPool
from typing_extensions import Unpack, override

from memserver.errors import DatabaseError
from memserver.storage.connecting import Prepared, TransactionLimits
from memserver.storage.database import Database, Transaction, is_one_commit
from memserver.storage.repeating import end
from memserver.storage.rows import fetch_value
from memserver.storage.watched import WatchedConnection
from memserver.telemetry.metrics import NO_METRICS, REPLICA, Recorder

logger = logging.getLogger(__name__)

T = TypeVar("T")
PAUSE_SECONDS = 5.0  # for which a replica that failed isn't used
BEHIND_SECONDS = 0.1  # how long one that is behind is waited for
LOOK_SECONDS = 0.01
POSITION = """SELECT CASE current_setting('synchronous_commit') WHEN 'off' THEN pg_current_wal_insert_lsn()
               ELSE pg_current_wal_flush_lsn() END::text"""
IDENTITY = "SELECT (SELECT system_identifier FROM pg_control_system()) || ' ' || current_database()"
REACHES = "SELECT pg_is_in_recovery() AND pg_last_wal_replay_lsn() >= %s::pg_lsn"


class Pooling(TypedDict):
    """What `Database` is made with, for the primary and the replica alike."""

    pool_size: int
    limits: TransactionLimits
    prepared: Prepared


class ReplicatedDatabase(Database):
    """A primary, and a replica that runs what only reads."""

    def __init__(
        self, url: str, replica_url: str, metrics: Recorder = NO_METRICS, **options: Unpack[Pooling]
    ) -> None:
        super().__init__(url, **options)
        self._replica = _Replica(_of_standbys(replica_url), **options)
        self._metrics = metrics
        self._pause_until = 0.0

    @override
    async def open(self) -> None:
        await super().open()
        async with self._connection() as primary:
            identity = await fetch_value(primary, IDENTITY)
        self._replica.open_later(identity)

    @override
    async def close(self) -> None:
        await self._replica.close()
        await super().close()

    @override
    async def read(self, tenant: str, action: Callable[[Transaction], Awaitable[T]]) -> T:
        """As `Database.read`; the action is run again if the replica fails in it."""
        if is_one_commit():
            return await super().read(tenant, action)
        if not self._replica.is_there or time.monotonic() < self._pause_until:
            self._metrics.record(REPLICA, 0, "away")
            return await super().read(tenant, action)
        async with self._connection() as primary:
            position = await fetch_value(primary, POSITION)
        start, how = time.perf_counter(), "done"
        try:
            return await self._replica.read(tenant, _from(position, action))
        except (DatabaseError, psycopg.Error) as error:
            how = "behind" if isinstance(error, _BehindError) else "failed"
            logger.warning("The replica isn't used for %.0f s. %s", PAUSE_SECONDS, error)
            self._pause_until = time.monotonic() + PAUSE_SECONDS
        finally:
            self._metrics.record(REPLICA, time.perf_counter() - start, how)
        return await super().read(tenant, action)


class _BehindError(DatabaseError):
    """The replica hasn't replayed what it must."""


class _Replica(Database):
    """The pool of connections to a standby."""

    pool_class = AsyncConnectionPool[WatchedConnection]  # keeps what takes no writes

    def __init__(self, url: str, **options: Unpack[Pooling]) -> None:
        super().__init__(url, **options)
        self._opening: asyncio.Task[None] | None = None
        self._is_open = False
        self._identity = ""

    @property
    def is_there(self) -> bool:
        return self._is_open and not self._away

    def open_later(self, identity: str) -> None:
        """Connect in the background, to standbys of this database only: nothing waits for a replica."""
        self._identity = identity
        self._opening = asyncio.create_task(self._open_until_there())

    @override
    async def close(self) -> None:
        if self._opening is not None:
            await end(self._opening)
        if self._pool is not None:
            await super().close()

    @override
    async def _connected(self, connection: WatchedConnection) -> None:
        if await fetch_value(connection, IDENTITY) != self._identity:
            raise psycopg.OperationalError("the replica is of another database than the primary")
        if not await fetch_value(connection, "SELECT row_security_active('agents')"):
            raise psycopg.OperationalError("row-level security doesn't bind the replica's role")
        await super()._connected(connection)

    async def _open_until_there(self) -> None:
        while True:
            try:
                await self.open()
            except DatabaseError as error:
                logger.warning("The replica isn't used yet. %s", error)
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                self._is_open = True
                return


def _from(
    position: str, action: Callable[[Transaction], Awaitable[T]]
) -> Callable[[Transaction], Awaitable[T]]:
    """The action, once the replica has replayed its WAL up to a position of the primary's. Raises _BehindError."""

    async def run(tx: Transaction) -> T:
        deadline = time.monotonic() + BEHIND_SECONDS
        while not await fetch_value(tx, REACHES, [position]):
            if time.monotonic() > deadline:
                raise _BehindError("It is behind the primary.")
            await asyncio.sleep(LOOK_SECONDS)
        return await action(tx)

    return run


def _of_standbys(url: str) -> str:
    """The URL; of several hosts any one that is a standby, unless it says itself which."""
    chosen = {"target_session_attrs": "standby", "load_balance_hosts": "random"}
    return make_conninfo(url, **{**chosen, **conninfo_to_dict(url)})
