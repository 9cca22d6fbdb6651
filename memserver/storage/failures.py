"""What an error of the database means: what should happen next, and what may be said of it to a client.

Three outcomes. It passes, and the same thing works again later: DatabaseError, on which a request is repeated and
a turn stays in the inbox. It is the size or kind of what was sent: InvalidInput. Anything else is a bug, and stays
what it is. The driver's words name files, hosts and roles, so they are for logs and for who runs a command here.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg_pool import PoolTimeout

from memserver.errors import DatabaseError, InvalidInput, MemserverError

AWAY = "The database can't be reached."
FAILED = "The database failed."
BUSY = "The database is too busy."
NOT_WRITABLE = "The database takes no writes."
DISTURBED = "The connection to the database was disturbed."
SOON = "Try again in a moment."

_PASSING = {
    "08": AWAY,
    "28": AWAY,  # a password that is being changed
    "3D": AWAY,
    "40": BUSY,
    "53": BUSY,
    "57": AWAY,
    "0A000": DISTURBED,
    "25006": NOT_WRITABLE,  # a standby, after a failover
    "25P02": DISTURBED,
    "25P03": BUSY,
    "25P04": BUSY,
    "26000": DISTURBED,  # a prepared statement that is on another of the pooler's connections
    "42P05": DISTURBED,
    "53100": NOT_WRITABLE,
    "55P03": BUSY,
    "57014": BUSY,
    "58030": NOT_WRITABLE,
}
"""Errors that pass, by SQLSTATE or its class, with what is said of them."""
_REFUSED = ("54", "22001", "22003", "22008", "22021", "22P05")
_TOO_LARGE = "invalid memory alloc request size"
_OLD_PLAN = "cached plan must not change result type"
"""What 0A000 means on a connection that a migration overtook; else it is a bug."""
_TAINTING = {"0A000", "25006", "25P02", "26000", "42P05"}


def classify(error: psycopg.Error) -> MemserverError | None:
    """What the error is to be raised as; None: a bug, as it is."""
    if isinstance(error, PoolTimeout):
        return _passing(BUSY, error)
    state = error.sqlstate
    if state is None:
        # The connection broke, or what came over it was no answer to the query, as from a pooler that lost its own.
        lost = isinstance(error, psycopg.OperationalError | psycopg.InternalError)
        return _passing(AWAY, error) if lost else None
    if state == "0A000" and _OLD_PLAN not in str(error):
        return None
    if said := _PASSING.get(state) or _PASSING.get(state[:2]):
        return _passing(said, error)
    if state.startswith(_REFUSED) or _TOO_LARGE in str(error):
        return InvalidInput("The database can't hold this.", hint="Send less, or in parts.")
    return _passing(FAILED, error) if isinstance(error, psycopg.OperationalError) else None


def is_transient(error: BaseException | None) -> bool:
    """Whether what failed may work when it is tried again."""
    return isinstance(error, psycopg.Error) and isinstance(classify(error), DatabaseError)


def taints(error: psycopg.Error) -> bool:
    """Whether the connection itself is what is wrong, so that it must not be used again."""
    return error.sqlstate in _TAINTING or (error.sqlstate is None and is_transient(error))


def takes_no_writes(error: psycopg.Error) -> bool:
    """Whether the server answers and can't write: a full disk, a standby."""
    failure = classify(error)
    return failure is not None and failure.message == NOT_WRITABLE


@contextmanager
def translate_errors() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        failure = classify(error)
        if failure is None:
            raise
        raise failure from error


def _passing(said: str, error: psycopg.Error) -> DatabaseError:
    return DatabaseError(said, detail=str(error), hint=SOON)
