"""The requests for an agent's timers, each once, for both clients."""

from datetime import datetime
from uuid import UUID

from memserver.client.models import Page, Timer
from memserver.client.requests import Id, Order, PageRequest, Request, given, new_key, nothing


def create_timer(
    agent: Id, text: str, *, at: datetime | None = None, in_seconds: float | None = None
) -> Request[Timer]:
    """Have the agent reminded of a text, as an event: `at` a time with a zone, or `in_seconds`."""
    return Request(
        "POST",
        "/agents/{agent}/timers",
        Timer.model_validate,
        {"agent": agent},
        body=given(text=text, at=at, in_seconds=in_seconds),
        key=new_key(),
    )


def list_timers(
    agent: Id, *, after: Id | None = None, limit: int = 50, order: Order | None = None
) -> PageRequest[Timer, UUID]:
    """List the timers that have not gone off yet."""
    return PageRequest(
        "GET",
        "/agents/{agent}/timers",
        Page[Timer, UUID].model_validate,
        {"agent": agent},
        {"after": after, "limit": limit, "order": order},
    )


def delete_timer(agent: Id, timer: Id) -> Request[None]:
    """Delete a timer, which then doesn't go off."""
    return Request(
        "DELETE",
        "/agents/{agent}/timers/{timer_id}",
        nothing,
        {"agent": agent, "timer_id": timer},
    )
