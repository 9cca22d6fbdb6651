"""Calls that wait for somebody: a person's approval, or the result from the caller who runs them."""

from uuid import UUID

from fastapi import Response

from memserver.agent.call_answers import CallAnswer
from memserver.api.dependencies import AgentFilter, AgentId, ById, PathText, ServicesDep, TenantDep
from memserver.api.json_body import Router
from memserver.api.routes.messages import IdempotencyKey, respond, streamed
from memserver.api.schemas.answers import turn_status, waiting_call
from memserver.api.schemas.tools import ApprovalIn, CallResultIn
from memserver.storage import agents, calls
from memserver.tools.foreign import cut
from memserver.wire.base import Page
from memserver.wire.messages import Answer, Turn, WaitingCall

router = Router(tags=["calls"])

STREAMED = streamed("What follows in the turn.")


@router.get("/calls/waiting")
async def list_waiting_calls(
    services: ServicesDep, tenant: TenantDep, listing: ById, agent_id: AgentFilter
) -> Page[WaitingCall, UUID]:
    """List the calls that wait for an answer, by their agents; each has one at most."""
    async with services.database.tenant(tenant) as tx:
        if agent_id is not None:
            await agents.get(tx, agent_id)
        found = await calls.list_waiting(tx, listing.query, agent_id=agent_id)
    items, more = listing.split(found, lambda call: call.agent_id)
    limits = services.deps.limits
    shown = [
        waiting_call(call, limits.expiry(call.created_at, of_request=call.of_request))
        for call in items
    ]
    return Page[WaitingCall, UUID](items=shown, next=more)


@router.post("/agents/{agent}/calls/{call_id}/approval", response_model=Answer, responses=STREAMED)
async def decide_call(
    agent_id: AgentId,
    call_id: PathText,
    said: ApprovalIn,
    services: ServicesDep,
    tenant: TenantDep,
    key: IdempotencyKey = None,
) -> Response:
    """Approve or deny a call. The turn continues, and the answer is what follows in it.

    It continues even if this request breaks off.
    """
    answer = CallAnswer("approval", said.approve, said.reason)
    turn, after = await services.conversation.answer(tenant, agent_id, call_id, answer, key=key)
    return await respond(services, tenant, turn, stream=said.stream, after=after)


@router.post("/agents/{agent}/calls/{call_id}/result", response_model=Answer, responses=STREAMED)
async def give_result(
    agent_id: AgentId,
    call_id: PathText,
    given: CallResultIn,
    services: ServicesDep,
    tenant: TenantDep,
    key: IdempotencyKey = None,
) -> Response:
    """Give the result of a call that the caller ran. The turn continues, as after an approval."""
    text = cut(given.text(), services.deps.limits.calls.characters)
    answer = CallAnswer("client", not given.failed, text)
    turn, after = await services.conversation.answer(tenant, agent_id, call_id, answer, key=key)
    return await respond(services, tenant, turn, stream=given.stream, after=after)


@router.post("/agents/{agent}/turns/{turn}/cancel")
async def cancel_turn(
    agent_id: AgentId,
    turn: int,
    services: ServicesDep,
    tenant: TenantDep,
    _key: IdempotencyKey = None,
) -> Turn:
    """End a turn at once, whether it is queued, runs or waits for an answer.

    What it has committed stays. The request to the model ends, and a tool that runs; a call that waits doesn't run.
    What came in meanwhile is worked next. To cancel it again is no error; a turn that ended otherwise gets 409 `turn_ended`.
    """
    return turn_status(await services.conversation.cancel(tenant, agent_id, min(turn, 2**62)))
