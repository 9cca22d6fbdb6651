"""The one way to say that there is no such thing, for each kind that several modules look up."""

from uuid import UUID

from memserver.errors import NotFound


def no_agent(named: UUID | str) -> NotFound:
    """There is no agent of this id or name."""
    return NotFound(f"There is no agent {_shown(named)}.", hint="GET /v1/agents lists yours.")


def no_collection(named: UUID | str) -> NotFound:
    """There is no collection of this id or name."""
    return NotFound(
        f"There is no collection {_shown(named)}.", hint="GET /v1/collections lists yours."
    )


def no_passage(passage_id: UUID) -> NotFound:
    """The collection has no such passage."""
    return NotFound(
        f"There is no passage {passage_id}.",
        hint="It may be in another collection; GET …/archival or …/passages lists them.",
    )


def _shown(named: UUID | str) -> str:
    return repr(named) if isinstance(named, str) else str(named)
