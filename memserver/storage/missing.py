"""The one way to say that there is no such thing, or that its name is taken."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import psycopg

from memserver.errors import Conflict, NotFound


def no_agent(named: UUID | str) -> NotFound:
    return NotFound(f"There is no agent {_show(named)}.", hint="GET /v1/agents lists yours.")


def no_collection(named: UUID | str) -> NotFound:
    return NotFound(
        f"There is no collection {_show(named)}.", hint="GET /v1/collections lists yours."
    )


def no_passage(passage_id: UUID) -> NotFound:
    return NotFound(
        f"There is no passage {passage_id}.",
        hint="It may be in another collection; GET …/archival or …/passages lists them.",
    )


@contextmanager
def refuse_taken_name(kind: str, name: object) -> Iterator[None]:
    """Raise Conflict where the statement in the block finds the name taken; `kind` has its article."""
    try:
        yield
    except psycopg.errors.UniqueViolation as error:
        raise Conflict(
            f"There is {kind} named {name!r} already.", hint="Choose another name."
        ) from error


def _show(named: UUID | str) -> str:
    return repr(named) if isinstance(named, str) else str(named)
