"""The requests for messages, turns and recall storage, each once, for both clients."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from memserver.client.models import Answer, FoundMessage, Message, Page, RecallResults, Turn
from memserver.client.requests import (
    Date,
    Id,
    JsonObject,
    Order,
    PageRequest,
    Request,
    given,
    new_key,
    nothing,
)


def send_message(
    agent: Id, text: str, *, created_at: datetime | None = None, idempotency_key: str | None = None
) -> Request[Answer]:
    """Say something to the agent and get its answer.

    Args:
        agent: whose.
        text: what is said.
        created_at: when it is said, with a zone; only to an agent whose option clock is "messages".
        idempotency_key: give your own to send the same message again later, from another process too,
            without its being stored twice. Retries within this call have one anyway.
    """
    return Request(
        "POST",
        "/agents/{agent}/messages",
        Answer.model_validate,
        {"agent": agent},
        body=given(text=text, created_at=created_at),
        key=idempotency_key or new_key(),
    )


def send_event(
    agent: Id,
    type: Literal["login", "upload", "custom"],
    text: str | None = None,
    *,
    idempotency_key: str | None = None,
) -> Request[Answer]:
    """Report that something happened, and get what the agent says to it, if anything.

    Args:
        agent: whom it concerns.
        type: login, upload, or custom, which needs a text.
        text: more of it.
        idempotency_key: as of a message.
    """
    return Request(
        "POST",
        "/agents/{agent}/events",
        Answer.model_validate,
        {"agent": agent},
        body=given(type=type, text=text),
        key=idempotency_key or new_key(),
    )


def stream_message(agent: Id, text: str, *, idempotency_key: str | None = None) -> Request[None]:
    """Say something to the agent and follow the turn as events."""
    return Request(
        "POST",
        "/agents/{agent}/messages",
        nothing,
        {"agent": agent},
        body={"text": text, "stream": True},
        key=idempotency_key or new_key(),
    )


def list_messages(
    agent: Id, *, after: int | None = None, limit: int = 50, order: Order | None = None
) -> PageRequest[Message, int]:
    """The history, from the position `after` on: newest first, or with the order `asc` oldest first."""
    return PageRequest(
        "GET",
        "/agents/{agent}/messages",
        Page[Message, int].model_validate,
        {"agent": agent},
        {"after": after, "limit": limit, "order": order},
    )


def get_message(agent: Id, position: int) -> Request[Message]:
    """Get one message of the history."""
    return Request(
        "GET",
        "/agents/{agent}/messages/{position}",
        Message.model_validate,
        {"agent": agent, "position": position},
    )


def import_messages(
    agent: Id,
    messages: Sequence[JsonObject],
    *,
    wait: bool = True,
    idempotency_key: str | None = None,
) -> Request[Turn]:
    """Store past messages, oldest first, without replies.

    Args:
        agent: whose.
        messages: up to 10,000 objects with `role` (user or assistant), `text` and, as wanted,
            `created_at` (a datetime with a zone).
        wait: answer when all is worked in; else at once, with the turn to ask for.
        idempotency_key: as of a message.
    """
    return Request(
        "POST",
        "/agents/{agent}/messages/import",
        Turn.model_validate,
        {"agent": agent},
        {"wait": wait},
        {"messages": list(messages)},
        key=idempotency_key or new_key(),
    )


def get_turn(agent: Id, turn: int) -> Request[Turn]:
    """How a turn stands: a message's, or an import's."""
    return Request(
        "GET",
        "/agents/{agent}/turns/{turn}",
        Turn.model_validate,
        {"agent": agent, "turn": turn},
    )


def turn_events(agent: Id, turn: int) -> Request[None]:
    """A turn as events, from its beginning or behind an event's id."""
    ids = {"agent": agent, "turn": turn}
    return Request("GET", "/agents/{agent}/turns/{turn}/events", nothing, ids)


def search_recall(
    agent: Id,
    query: str | None = None,
    *,
    ignore_case: bool = False,
    start_date: Date | None = None,
    end_date: Date | None = None,
    role: Literal["user", "assistant"] | None = None,
    mode: Literal["hybrid", "exact", "words", "meaning"] = "hybrid",
    page: int = 1,
    after: str | None = None,
    limit: int = 10,
) -> Request[RecallResults]:
    """Search what was said.

    Args:
        agent: whose.
        query: what to look for. Messages that hold this very text come first, then those found by its words and
            by meaning; left out: all, oldest first.
        ignore_case: by the very text alone, upper and lower case alike.
        start_date: when it was said, at the earliest.
        end_date: and at the latest.
        role: who said it.
        mode: what to look by; hybrid is all three.
        page: from 1.
        after: instead of a page, the `next` of the one before, which a search by the very text has.
        limit: messages on a page.
    """
    parameters = {
        **_recall_filter(query, ignore_case, start_date, end_date, role),
        "mode": mode,
        "page": None if after is not None else page,
        "after": after,
        "limit": limit,
    }
    return Request(
        "GET",
        "/agents/{agent}/recall/search",
        RecallResults.model_validate,
        {"agent": agent},
        parameters,
    )


def recall_matches(
    agent: Id,
    query: str | None = None,
    *,
    ignore_case: bool = False,
    start_date: Date | None = None,
    end_date: Date | None = None,
    role: Literal["user", "assistant"] | None = None,
    limit: int = 50,
) -> PageRequest[FoundMessage, str]:
    """All messages that hold the very text; the arguments are those of `search_recall`."""
    return PageRequest(
        "GET",
        "/agents/{agent}/recall/search",
        _matches,
        {"agent": agent},
        {
            **_recall_filter(query, ignore_case, start_date, end_date, role),
            "mode": "exact",
            "limit": limit,
        },
    )


def _matches(body: object) -> Page[FoundMessage, str]:
    return Page[FoundMessage, str].model_validate(body)


def _recall_filter(
    query: str | None,
    ignore_case: bool,
    start_date: Date | None,
    end_date: Date | None,
    role: str | None,
) -> dict[str, Any]:
    return {
        "query": query,
        "ignore_case": ignore_case,
        "start_date": start_date,
        "end_date": end_date,
        "role": role,
    }
