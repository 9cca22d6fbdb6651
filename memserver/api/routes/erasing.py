"""Messages deleted or redacted one by one, with all that was derived from them."""

from typing import Annotated

from fastapi import Path, Query

from memserver.api.dependencies import AgentId, BeginDep
from memserver.api.json_body import Router
from memserver.api.schemas.messages import DeleteIn, ExpiryIn
from memserver.storage import erasure, expiry
from memserver.storage.erasure import Selection
from memserver.wire.messages import Erased, Expiring

router = Router(prefix="/agents/{agent}", tags=["messages"])

Redact = Annotated[
    bool, Query(description="Leave a placeholder in each place, which the agent reads.")
]
Number = Annotated[int, Path(ge=0, lt=2**62)]


@router.post("/messages/expire")
async def expire_messages(agent_id: AgentId, wanted: ExpiryIn, begin: BeginDep) -> Expiring:
    """Say when messages, or whole exchanges, expire: within an hour of then they are deleted, as by hand."""
    async with begin() as tx:
        selection = Selection(wanted.positions, wanted.turns)
        count = await expiry.set_expiry(tx, agent_id, selection, wanted.expires_at)
    return Expiring(messages=count)


@router.delete("/messages/{position}")
async def delete_message(
    agent_id: AgentId, position: Number, begin: BeginDep, redact: Redact = False
) -> Erased:
    """Delete a message, with its call and that call's result.

    The other messages keep their positions. A summary that had taken it up is written again without it, by a job.
    """
    async with begin() as tx:
        erased = await erasure.erase(tx, agent_id, Selection([position]), redact=redact)
    return Erased.model_validate(erased)


@router.delete("/turns/{turn}")
async def delete_turn(
    agent_id: AgentId, turn: Number, begin: BeginDep, redact: Redact = False
) -> Erased:
    """Delete a whole exchange: all messages of a turn that has ended. What it cost stays known."""
    async with begin() as tx:
        erased = await erasure.erase(tx, agent_id, Selection(turns=[turn]), redact=redact)
    return Erased.model_validate(erased)


@router.post("/messages/delete")
async def delete_messages(agent_id: AgentId, wanted: DeleteIn, begin: BeginDep) -> Erased:
    """Delete several messages, or whole exchanges: all of them, or none if one is not there."""
    async with begin() as tx:
        selection = Selection(wanted.positions, wanted.turns)
        erased = await erasure.erase(tx, agent_id, selection, redact=wanted.redact)
    return Erased.model_validate(erased)
