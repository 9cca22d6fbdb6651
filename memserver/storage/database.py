"""The pool and the tenant scope. The only place that opens connections; knows no table.

Every transaction belongs to one tenant, named to Postgres at its start: row-level security then
hides everybody else's rows, even from a query that forgot to.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

import psycopg
from pgvector.psycopg.halfvec import register_halfvec_info
from psycopg import AsyncConnection, sql
from psycopg.pq import Escaping
from psycopg.rows import DictRow, dict_row
from psycopg.types import TypeInfo
from psycopg.types.json import set_json_loads
from psycopg_pool import AsyncConnectionPool, PoolTimeout
from pydantic_core import from_json
from typing_extensions import override

from memserver.errors import DatabaseError
from memserver.storage.connecting import Prepared, TransactionLimits, find_route, with_timeouts
from memserver.storage.failures import (
    AWAY,
    BUSY,
    SOON,
    classify,
    taints,
    takes_no_writes,
    translate_errors,
)
from memserver.storage.watched import Pulses, WatchedConnection, require_writes

logger = logging.getLogger(__name__)

T = TypeVar("T")
Transaction = AsyncConnection[DictRow]
"""A connection inside a transaction, in one tenant's scope. Storage functions take it first."""

IDLE_SECONDS = 60
"""How long `OneCommit` may hold what was written; then Postgres ends it, and all of it is undone."""


POOL_SECONDS = 5
"""How long a request waits for a connection: the pool is full, or the database has just gone away."""
CHECK_SECONDS = 5
WRITES_CHECKED_FOR = 30
"""Seconds for which a check of writing holds: it is some hundred kilobytes each time."""
LISTENING_CHECKED_SECONDS = 10.0
AWAY_SECONDS = 1  # the same once connecting has failed for a while
RECONNECT_SECONDS = 1  # between two tries to connect, while the database is away


class WritablePool(AsyncConnectionPool[WatchedConnection]):
    """A pool that, when it looks through its connections, keeps none that takes no writes."""

    @staticmethod
    @override
    async def check_connection(conn: AsyncConnection[Any]) -> None:
        await require_writes(conn)


class Database:
    """A pool of connections as the application role."""

    pool_class: type[AsyncConnectionPool[WatchedConnection]] = WritablePool

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 10,
        limits: TransactionLimits | None = None,
        prepared: Prepared = "auto",
    ) -> None:
        self.url = url
        self._pool_size = pool_size
        self._limits = limits or TransactionLimits()
        self._prepared = prepared
        self._limits_in_each = ""  # transaction, where a connection can't have them
        self._pool: AsyncConnectionPool[WatchedConnection] | None = None
        self._pulses = Pulses(url)
        self._weeding: asyncio.Task[None] | None = None
        self._away = False
        self._check_writes_at = 0.0

    @property
    def pool(self) -> AsyncConnectionPool[WatchedConnection]:
        """The connections, for a library that brings its own queries."""
        assert self._pool is not None, "open() first"
        return self._pool

    async def open(self) -> None:
        route = await find_route(self.url, self._limits, self._prepared)
        if described := route.describe():
            logger.info("The database is reached %s.", described)
        self._limits_in_each = route.scope
        kwargs: dict[str, Any] = {"row_factory": dict_row, "autocommit": True}
        if not route.prepares:
            kwargs["prepare_threshold"] = None
        self._pool = self.pool_class(
            route.url,
            connection_class=WatchedConnection,
            kwargs=kwargs,
            min_size=2,
            max_size=self._pool_size,
            open=False,
            name="memserver",
            configure=self._connected,
            timeout=POOL_SECONDS,
            # After this time one connection is given up, and the next begins: a steady pace, where the pool's own
            # pauses double up to minutes.
            reconnect_timeout=RECONNECT_SECONDS,
            reconnect_failed=self._still_away,
        )
        try:
            await self._pool.open(wait=True, timeout=30)
        except PoolTimeout as error:
            await self._pool.close()
            raise DatabaseError(AWAY, detail=str(error)) from error

    async def close(self) -> None:
        if self._weeding is not None:
            self._weeding.cancel()
        await self.pool.close()

    def tenant(self, tenant: str) -> AbstractAsyncContextManager[Transaction]:
        """One transaction in a tenant's scope; commits at the end, rolls back on an exception.

        Within `one_commit` it is a part of that one's transaction.
        """
        whole = _current_commit()
        return self._begun("", tenant) if whole is None else whole.part(tenant)

    async def read(self, tenant: str, action: Callable[[Transaction], Awaitable[T]]) -> T:
        """Run what only reads, in a transaction of a tenant's scope that sees all that was committed before."""
        whole = _current_commit()
        begun = self._begun("READ ONLY", tenant) if whole is None else whole.part(tenant)
        async with begun as connection:
            return await action(connection)

    def snapshot(self, tenant: str) -> AbstractAsyncContextManager[Transaction]:
        """One transaction in a tenant's scope that only reads, and sees one moment in all its statements."""
        return self._begun("ISOLATION LEVEL REPEATABLE READ, READ ONLY", tenant)

    def across_tenants(self) -> AbstractAsyncContextManager[Transaction]:
        """For the few functions that see every tenant; tables show nothing here."""
        return self._begun("")

    @asynccontextmanager
    async def one_commit(self) -> AsyncIterator["OneCommit"]:
        """Make all that this task writes in the block one transaction; undone unless it is committed."""
        whole = OneCommit(self)
        token = _one_commit.set(whole)
        try:
            yield whole
        finally:
            _one_commit.reset(token)
            await whole.roll_back()

    async def check(self) -> None:
        """See that it answers and, now and then and after a write that failed, that it can be written."""
        writes = time.monotonic() >= self._check_writes_at
        try:
            async with asyncio.timeout(CHECK_SECONDS), self.across_tenants() as tx:
                await tx.execute("SELECT check_writes()" if writes else "SELECT 1")
        except TimeoutError as error:
            raise DatabaseError(BUSY, hint=SOON) from error
        if writes:
            self._check_writes_at = time.monotonic() + WRITES_CHECKED_FOR

    async def listen(self, *channels: str) -> AsyncIterator[tuple[str, str]]:
        """Yield channel and payload of what is notified, on a connection of its own.

        Raises:
            DatabaseError: the connection failed; what was notified meanwhile is lost.
        """
        with translate_errors():
            url = with_timeouts(self.url)
            connecting: Any = WatchedConnection.connect(url, autocommit=True)
            async with await connecting as connection:
                for channel in channels:
                    await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
                while True:
                    async for notice in connection.notifies(timeout=LISTENING_CHECKED_SECONDS):
                        yield notice.channel, notice.payload
                    # Nobody notifies on a server that stands still, or that another one has replaced.
                    await require_writes(connection)

    @asynccontextmanager
    async def _begun(self, kind: str, tenant: str | None = None) -> AsyncIterator[Transaction]:
        """A transaction of a kind; that it is a tenant's is said in the same message in which it begins."""
        settings = self._limits_in_each
        async with self._connection() as connection:
            if tenant is not None:
                name = Escaping(connection.pgconn).escape_literal(tenant.encode()).decode()
                settings = (
                    f"set_config('memserver.tenant', {name}, true){settings and ', '}{settings}"
                )
            begin = f"BEGIN {kind}; SELECT {settings}" if settings else f"BEGIN {kind}".strip()
            done = False
            try:
                await connection.execute(begin.encode(), prepare=False)
                yield connection
                done = True
            except psycopg.Rollback:
                pass
            finally:
                if done:
                    await connection.commit()
                else:
                    with suppress(psycopg.Error):
                        await connection.rollback()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Transaction]:
        try:
            async with self.pool.connection(AWAY_SECONDS if self._away else None) as connection:
                try:
                    yield connection
                except psycopg.Error as error:
                    await self._look_after(connection, error)
                    raise
        except psycopg.Error as error:
            # Whether the pool is used up or the database away, only its tries to connect show.
            if isinstance(error, PoolTimeout) and self._away:
                raise DatabaseError(AWAY, detail=str(error), hint=SOON) from error
            failure = classify(error)
            if failure is None:
                raise
            raise failure from error

    async def _look_after(self, connection: Transaction, error: psycopg.Error) -> None:
        """What an error says of the connection, of the others and of the disk."""
        if takes_no_writes(error):
            self._check_writes_at = 0.0
        if taints(error):
            await connection.close()
            self._weed()

    async def _connected(self, connection: WatchedConnection) -> None:
        self._away = False
        connection.answers = self._pulses.of(connection).beats
        set_json_loads(from_json, connection)  # four times as fast as json.loads
        await _take_vectors(connection)

    async def _still_away(self, pool: AsyncConnectionPool[Any]) -> None:
        self._away = True
        await pool.check()  # begins the next try

    def _weed(self) -> None:
        """Look through the pool: what ended one connection has ended others, too."""
        if self._weeding is None or self._weeding.done():
            self._weeding = asyncio.create_task(self.pool.check())


async def _take_vectors(connection: Transaction) -> None:
    """Let the driver send vectors in binary: many times faster than as text."""
    info = await TypeInfo.fetch(connection, "halfvec")
    if info is not None:
        register_halfvec_info(connection, info)


class OneCommit:
    """The transactions of one task as one.

    From the first that writes on they share a connection and are committed together. What only reads is given
    back at its end, so that nothing is held while a request waits for an embedder or a model. What has been
    written is seen by nobody else until the commit, so nothing may be waited for that another task makes of it.
    """

    def __init__(self, database: Database) -> None:
        self.task = asyncio.current_task()
        self._database = database
        self._stack = AsyncExitStack()
        self._transaction: Transaction | None = None
        self._depth = 0

    @asynccontextmanager
    async def part(self, tenant: str) -> AsyncIterator[Transaction]:
        """What would else be a transaction in a tenant's scope; undone by itself on an exception."""
        if self._transaction is None:
            transaction = self._database.across_tenants()
            self._transaction = await self._stack.enter_async_context(transaction)
        tx = self._transaction
        with translate_errors():
            self._depth += 1
            try:
                async with tx.transaction():
                    await tx.execute(
                        "SELECT set_config('memserver.tenant', %s, true), "
                        "set_config('idle_in_transaction_session_timeout', %s, true)",
                        [tenant, f"{IDLE_SECONDS}s"],
                    )
                    yield tx
            finally:
                self._depth -= 1
            if self._depth or await _has_written(tx):
                return
        await self.commit()

    async def commit(self) -> None:
        self._transaction = None
        await self._stack.aclose()

    async def roll_back(self) -> None:
        self._transaction = None
        rollback = psycopg.Rollback()
        await self._stack.__aexit__(type(rollback), rollback, None)


async def _has_written(tx: Transaction) -> bool:
    """Whether the transaction has anything to commit, or holds a row's lock."""
    cursor = await tx.execute("SELECT 1 WHERE pg_current_xact_id_if_assigned() IS NOT NULL")
    return await cursor.fetchone() is not None


_one_commit: ContextVar[OneCommit | None] = ContextVar("one_commit", default=None)


def _current_commit() -> OneCommit | None:
    whole = _one_commit.get()
    return whole if whole is not None and whole.task is asyncio.current_task() else None


def is_one_commit() -> bool:
    """Whether what this task does now is a part of one transaction, so that nobody else sees what it writes."""
    return _current_commit() is not None


@dataclass(frozen=True, slots=True)
class TenantScope:
    """A tenant's part of the database, for what opens its transactions itself."""

    database: Database
    tenant: str

    async def read(self, action: Callable[[Transaction], Awaitable[T]]) -> T:
        """As `Database.read`."""
        return await self.database.read(self.tenant, action)

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """As `Database.tenant`."""
        return self.database.tenant(self.tenant)


class LazyTransaction(AsyncExitStack):
    """A tenant's transaction that begins when it is first needed.

    So a tool that takes its time before it touches the database holds no connection meanwhile.
    """

    def __init__(self, database: Database, tenant: str) -> None:
        super().__init__()
        self._database = database
        self._tenant = tenant
        self._transaction: Transaction | None = None

    async def get(self) -> Transaction:
        if self._transaction is None:
            scope = self._database.tenant(self._tenant)
            self._transaction = await self.enter_async_context(scope)
        return self._transaction

    async def roll_back(self) -> None:
        """Undo everything so far; what follows begins a new transaction."""
        rollback = psycopg.Rollback()
        await self.__aexit__(type(rollback), rollback, None)
        self._transaction = None
