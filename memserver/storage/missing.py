"""The one way to say that there is no such thing, for each kind that several modules look up."""

from uuid import UUID

from memserver.errors import NotFound


def no_agent(agent_id: UUID) -> NotFound:
    """There is no such agent."""
    return NotFound(f"There is no agent {agent_id}.", hint="GET /v1/agents lists yours.")


def no_collection(collection_id: UUID) -> NotFound:
    """There is no such collection."""
    return NotFound(
        f"There is no collection {collection_id}.", hint="GET /v1/collections lists yours."
    )


def no_passage(passage_id: UUID) -> NotFound:
    """The collection has no such passage."""
    return NotFound(f"There is no passage {passage_id}.")
