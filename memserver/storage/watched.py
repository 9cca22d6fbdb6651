"""Connections that don't wait for ever: for a server that is stopped, not dead, no error comes from anywhere.

A statement that takes long may be a long statement. So the server is asked, over a connection of its own, whether it
answers anybody; only if it doesn't is the statement given up. What one process of a server's does, nobody else can see:
for that a statement has a longest time, except where it is known to take its time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from secrets import randbits
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection
from psycopg.abc import PQGen
from psycopg.conninfo import make_conninfo
from psycopg.errors import _WaitTimeout
from psycopg.pq.abc import PGconn
from psycopg.rows import DictRow, dict_row, scalar_row
from typing_extensions import override

from memserver.metering import timed
from memserver.storage.connecting import with_timeouts

T = TypeVar("T")
QUIET_SECONDS = 5.0  # after which a statement is long, so that it is looked at
LONGEST_SECONDS = 60.0
_INTERVAL = 0.1
_takes_its_time: ContextVar[bool] = ContextVar("_takes_its_time", default=False)


@contextmanager
def allow_long_statements() -> Iterator[None]:
    """Statements in the block may take as long as they do: an index, a deletion of a million rows."""
    token = _takes_its_time.set(True)
    try:
        yield
    finally:
        _takes_its_time.reset(token)


class WatchedConnection(AsyncConnection[DictRow]):
    """A connection whose statements are given up when the server answers nobody."""

    # Asks the server over another connection; None: whatever takes long is given up
    answers: Callable[[], Awaitable[bool]] | None = None

    def __init__(self, pgconn: PGconn) -> None:
        super().__init__(pgconn, dict_row)
        # Names of prepared statements are counted from here. Where a pooler hands a statement to a session that prepared
        # another one under the same name, that one would be run, perhaps with no error.
        self._prepared._prepared_idx = randbits(62)

    @override
    async def wait(
        self, gen: PQGen[T], interval: float = _INTERVAL, timeout: float | None = None
    ) -> T:
        if timeout is not None:
            return await super().wait(gen, interval, timeout)
        waited = 0.0
        with timed("database"):
            while True:
                try:
                    return await super().wait(gen, interval, QUIET_SECONDS)
                except _WaitTimeout as error:
                    waited += QUIET_SECONDS
                    if not await self._is_worth_waiting(waited):
                        self.pgconn.finish()
                        raise psycopg.OperationalError("the server doesn't answer") from error

    async def _is_worth_waiting(self, waited: float) -> bool:
        if self.answers is None or (waited >= LONGEST_SECONDS and not _takes_its_time.get()):
            return False
        try:
            return await self.answers()
        except asyncio.CancelledError:
            self.pgconn.finish()  # in the middle of a statement nobody can use it again
            raise


async def require_writes(connection: AsyncConnection[Any]) -> None:
    """Close a connection to a server that takes no writes any more: another one may have taken over.

    Raises:
        psycopg.Error: it takes none, or the connection failed.
    """
    cursor = await connection.cursor(row_factory=scalar_row).execute("SHOW transaction_read_only")
    if await cursor.fetchone() != "off":
        await connection.close()
        raise psycopg.errors.ReadOnlySqlTransaction("the server takes no writes")


class Pulses:
    """Whether a server answers, of all that a URL leads to: one that does says nothing of another."""

    def __init__(self, url: str) -> None:
        self._url = with_timeouts(url)
        self._pulses: dict[str, Pulse] = {}

    def of(self, connection: AsyncConnection[Any]) -> "Pulse":
        """That of the very server which a connection leads to."""
        info = connection.info
        url = make_conninfo(
            self._url,
            host=info.host,
            port=info.port,
            hostaddr=info.hostaddr or None,
            target_session_attrs="any",
        )
        return self._pulses.setdefault(url, Pulse(url))


class Pulse:
    """Whether a server answers, asked once for all that wait to know it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._asked: asyncio.Task[bool] | None = None

    async def beats(self) -> bool:
        if self._asked is None or self._asked.done():
            self._asked = asyncio.create_task(self._ask())
        return await asyncio.shield(self._asked)

    async def _ask(self) -> bool:
        try:
            connecting: Any = WatchedConnection.connect(self._url, autocommit=True)
            async with await connecting as connection:
                await connection.execute("SELECT 1")
        except psycopg.Error as error:
            return error.sqlstate is not None  # "too many connections" is an answer, too
        return True
