"""The requests for calls that wait for somebody, each once, for both clients.

A call is answered once. A request that is sent again with its key gets what came of the first.
"""

from typing import Any
from uuid import UUID

from memserver.client.models import Answer, Page, Turn, WaitingCall
from memserver.client.requests import Id, Order, PageRequest, Request, given, new_key, nothing


def list_waiting_calls(
    agent: Id | None = None, *, after: Id | None = None, limit: int = 50, order: Order | None = None
) -> PageRequest[WaitingCall, UUID]:
    """List the calls that wait for an answer, of one agent or of all; an agent has at most one."""
    query = {"agent": agent, "after": after, "limit": limit, "order": order}
    return PageRequest("GET", "/calls/waiting", Page[WaitingCall, UUID].model_validate, query=query)


def approve_call(agent: Id, call: str, *, idempotency_key: str | None = None) -> Request[Answer]:
    """Let a call run. The turn goes on, and the answer is what follows in it."""
    return Request(
        "POST",
        _APPROVAL,
        Answer.model_validate,
        _ids(agent, call),
        body={"approve": True},
        key=idempotency_key or new_key(),
    )


def deny_call(
    agent: Id, call: str, reason: str | None = None, *, idempotency_key: str | None = None
) -> Request[Answer]:
    """Refuse a call; the model reads the reason. The turn goes on, and the answer is what follows in it."""
    return Request(
        "POST",
        _APPROVAL,
        Answer.model_validate,
        _ids(agent, call),
        body=given(approve=False, reason=reason),
        key=idempotency_key or new_key(),
    )


def give_result(
    agent: Id,
    call: str,
    result: Any,  # noqa: ANN401 - JSON
    *,
    failed: bool = False,
    idempotency_key: str | None = None,
) -> Request[Answer]:
    """Give the result of a call that you ran. The turn goes on, and the answer is what follows in it.

    Args:
        agent: whose.
        call: its id.
        result: text, or any JSON.
        failed: the call failed; `result` says why.
        idempotency_key: as of a message.
    """
    return Request(
        "POST",
        _RESULT,
        Answer.model_validate,
        _ids(agent, call),
        body={"result": result, "failed": failed},
        key=idempotency_key or new_key(),
    )


def stream_decision(
    agent: Id,
    call: str,
    *,
    approve: bool,
    reason: str | None = None,
    idempotency_key: str | None = None,
) -> Request[None]:
    """Approve or refuse a call and follow the turn as events, from the call on."""
    return Request(
        "POST",
        _APPROVAL,
        nothing,
        _ids(agent, call),
        body=given(approve=approve, reason=reason, stream=True),
        key=idempotency_key or new_key(),
    )


def stream_result(
    agent: Id,
    call: str,
    result: Any,  # noqa: ANN401 - JSON
    *,
    failed: bool = False,
    idempotency_key: str | None = None,
) -> Request[None]:
    """Give the result of a call and follow the turn as events, from the call on."""
    return Request(
        "POST",
        _RESULT,
        nothing,
        _ids(agent, call),
        body={"result": result, "failed": failed, "stream": True},
        key=idempotency_key or new_key(),
    )


def cancel_turn(agent: Id, turn: int) -> Request[Turn]:
    """End a turn that waits for an answer. Its call doesn't run; what came in meanwhile is worked next."""
    return Request(
        "POST",
        "/agents/{agent}/turns/{turn}/cancel",
        Turn.model_validate,
        {"agent": agent, "turn": turn},
        key=new_key(),
    )


_APPROVAL = "/agents/{agent}/calls/{call_id}/approval"
_RESULT = "/agents/{agent}/calls/{call_id}/result"


def _ids(agent: Id, call: str) -> dict[str, Id | int]:
    return {"agent": agent, "call_id": call}
