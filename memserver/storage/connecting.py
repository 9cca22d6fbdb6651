"""How connections to the database are opened: what bounds their waits, and what a pooler in between forbids.

A pooler as PgBouncer refuses or forgets what is set for a connection, and in transaction mode gives each transaction
another connection to Postgres, where what was prepared on the one before isn't. Then every transaction brings its
own limits, and nothing is prepared unless the settings say that the pooler knows prepared statements.
"""

from dataclasses import dataclass
from typing import Literal

from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from memserver.storage.failures import translate_errors

Prepared = Literal["auto", "on", "off"]
"""Whether statements are prepared; auto: unless a pooler stands between."""

_NETWORK = {
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
}
"""A host that is lost without a word is noticed within half a minute, not after the kernel's two hours."""


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """Seconds that Postgres lets a transaction of ours wait."""

    # For its next statement; what it holds is free again when our process hangs for longer
    idle: float = 15
    lock: float = 3  # for one lock, so that who waits for somebody's hangs doesn't use up the pool

    def settings(self) -> dict[str, str]:
        return {
            "idle_in_transaction_session_timeout": str(round(1000 * self.idle)),
            "lock_timeout": str(round(1000 * self.lock)),
        }


@dataclass(frozen=True, slots=True)
class Route:
    url: str  # with what bounds a connection's waits
    pooled: bool  # whether a pooler stands between, so that nothing can be set for a connection
    prepares: bool  # whether statements are prepared
    limits: TransactionLimits  # of each transaction; a pooled one has to set them itself

    @property
    def scope(self) -> str:
        """The settings that a transaction must begin with, as the list of a SELECT; empty: none."""
        if not self.pooled:
            return ""
        values = self.limits.settings().items()
        return ", ".join(f"set_config('{name}', '{value}', true)" for name, value in values)

    def describe(self) -> str:
        if not self.pooled:
            return "" if self.prepares else "without prepared statements"
        prepared = "with" if self.prepares else "without"
        return f"through a pooler, {prepared} prepared statements"


def with_timeouts(url: str) -> str:
    """The URL with limits for a network that fails; what it says itself stays."""
    given = conninfo_to_dict(url)
    return make_conninfo(url, **{name: _NETWORK[name] for name in _NETWORK if name not in given})


def for_writing(url: str) -> str:
    """The URL; of several hosts the one that takes writes, unless the URL says itself which."""
    given = conninfo_to_dict(url)
    several = "," in str(given.get("host") or given.get("hostaddr") or "")
    if not several or "target_session_attrs" in given:
        return url
    return make_conninfo(url, target_session_attrs="read-write")


async def find_route(url: str, limits: TransactionLimits, prepared: Prepared = "auto") -> Route:
    """Connect once, and see what stands between. Raises DatabaseError.

    A pooler makes up the process that a client is said to be connected to.
    """
    url = with_timeouts(url)
    with translate_errors():
        async with await AsyncConnection.connect(url, autocommit=True) as connection:
            cursor = await connection.execute("SELECT pg_backend_pid()")
            pooled = await cursor.fetchone() != (connection.info.backend_pid,)
    prepares = prepared == "on" or (prepared == "auto" and not pooled)
    if not pooled:
        options = str(conninfo_to_dict(url).get("options") or "")
        for name, value in limits.settings().items():
            options += "" if name in options else f" -c {name}={value}"
        url = make_conninfo(url, options=options.strip())
    return Route(url, pooled, prepares, limits)
