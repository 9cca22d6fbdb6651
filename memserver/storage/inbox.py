"""The inbox: what came in for an agent, in the order of its arrival. Leaves working it to `leases`.

A posted message is one row of `turns` and its row of `messages`, written together: the inbox row is
the recall row, and from its commit on nothing can lose it.
"""

import hashlib
import json
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

from memserver.errors import Conflict, NotFound
from memserver.messages import JsonObject, Picture, Role, TokenUsage
from memserver.storage import pictures
from memserver.storage.database import Database, Transaction
from memserver.storage.missing import no_agent
from memserver.telemetry import ids

PLACES_PER_TURN = 1000
"""Positions that belong to one turn: what came in first, then the steps."""

IMPORT_BATCH = 500
"""Imported messages that make one turn."""


@dataclass(frozen=True, slots=True)
class TurnRow:
    """One entry of the inbox and what became of it; `attempts`: how often it was taken up."""

    agent_id: UUID
    turn: int
    kind: Literal["message", "import"]
    state: Literal["waiting", "running", "requires_action", "done", "failed"]
    steps: int
    attempts: int
    stop_reason: str | None
    error: JsonObject | None
    usage: TokenUsage
    posted_by: str
    created_at: datetime
    finished_at: datetime | None
    started_at: datetime | None = None
    request: JsonObject | None = None
    """What the client's request brought to this turn alone, as `TurnRequest.stored` has it."""
    request_id: str | None = None
    """By which the log names the request that posted it."""

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.state in ("done", "failed")

    @property
    def first_position(self) -> int:
        return self.turn * PLACES_PER_TURN


spending_key: ContextVar[UUID | None] = ContextVar("spending_key", default=None)
"""The API key on whose budget turns are posted here; None: on nobody's."""


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message from outside, or as the system's an event; `created_at` None means now.

    `chat`, `chat_note` and `expires_at` are as an Entry has them, `request` as its turn.
    """

    text: str
    tokens: int
    role: Role = "user"
    created_at: datetime | None = None
    chat: str | None = None
    chat_note: str | None = None
    pictures: tuple[Picture, ...] = ()
    expires_at: datetime | None = None
    request: JsonObject | None = None


class Posted(NamedTuple):
    """What posting a message gave: its turn, the model that the agent names, and whether an earlier turn's call waits."""

    turn: TurnRow
    model: str | None
    paused: bool


class Envelope(NamedTuple):
    """How something was posted; `fingerprint` identifies the content: a repeated request is no key used twice."""

    worker: str
    key: str | None = None
    fingerprint: str | None = None

    @classmethod
    def of(cls, worker: str, key: str | None, messages: Sequence[NewMessage]) -> "Envelope":
        if key is None:
            return cls(worker)
        digest = hashlib.sha256()
        for message in messages:
            digest.update(f"{message.role}\0{message.created_at}\0{message.text}\0".encode())
            for picture in message.pictures:
                digest.update(f"{picture.digest}\0".encode())
            if message.expires_at is not None:
                digest.update(message.expires_at.isoformat().encode())
            if message.request is not None:
                digest.update(json.dumps(message.request, sort_keys=True).encode())
        return cls(worker, key, digest.hexdigest())


_TURN_FIELDS = [name for name in TurnRow.__dataclass_fields__ if name != "usage"]
TURN_COLUMNS = """t.agent_id, t.turn, t.kind, t.state, t.steps, t.attempts, t.stop_reason, t.error,
    t.prompt_tokens, t.completion_tokens, t.cached_tokens, t.posted_by, t.created_at, t.started_at, t.finished_at,
    t.request, t.request_id"""

# The running turn is the one after done_turn, and so is one that was cancelled and not yet passed over.
# Ordered, since Postgres would look through all turns for one that has started.
FIRST_WAITING = """SELECT CASE WHEN s.paused OR (
        SELECT t.started_at FROM turns t WHERE t.agent_id = s.agent_id AND t.turn > s.done_turn
        ORDER BY t.turn LIMIT 1) IS NOT NULL
    THEN s.done_turn + 2 ELSE s.done_turn + 1 END"""

_POST = f"""
WITH numbered AS (
    UPDATE agent_state SET next_turn = next_turn + 1, message_count = message_count + 1
    WHERE agent_id = %(agent_id)s
    RETURNING agent_id, tenant, next_turn - 1 AS turn, paused
), posted AS (
    INSERT INTO turns (agent_id, turn, tenant, kind, idempotency_key, fingerprint, posted_by, request, request_id,
                       api_key)
    SELECT agent_id, turn, tenant, 'message', %(key)s, %(fingerprint)s, %(worker)s, %(request)s,
           %(request_id)s, %(api_key)s
    FROM numbered
    RETURNING *
), stored AS (
    INSERT INTO messages (agent_id, position, tenant, role, content, tokens, created_at, chat, chat_note,
                          pictures, expires_at)
    SELECT agent_id, turn * {PLACES_PER_TURN}, tenant, %(role)s, %(text)s, %(tokens)s,
           coalesce(%(created_at)s, now()), %(chat)s, %(chat_note)s, %(pictures)s,
           %(expires_at)s
    FROM posted
)
SELECT {TURN_COLUMNS}, a.model, (SELECT paused FROM numbered) AS paused
FROM posted t JOIN agents a ON a.id = t.agent_id
"""

_POST_BATCHES = f"""
WITH numbered AS (
    UPDATE agent_state
    SET next_turn = next_turn + %(batches)s, message_count = message_count + %(messages)s
    WHERE agent_id = %(agent_id)s
    RETURNING agent_id, tenant, next_turn - %(batches)s AS first, next_turn - 1 AS last
), posted AS (
    INSERT INTO turns (agent_id, turn, tenant, kind, idempotency_key, fingerprint, posted_by, request_id)
    SELECT agent_id, n, tenant, 'import', CASE WHEN n = last THEN %(key)s END,
           CASE WHEN n = last THEN %(fingerprint)s END, %(worker)s, %(request_id)s
    FROM numbered, generate_series(first, last) n
    RETURNING *
)
SELECT {TURN_COLUMNS}, t.tenant FROM posted t ORDER BY t.turn
"""


async def post(
    database: Database, tenant: str, agent_id: UUID, new: NewMessage, envelope: Envelope
) -> Posted:
    """Store a user's message, or an event, durably as the agent's next turn.

    Returns:
        The new turn; or, for a key that was used before with the same content, that first turn.

    Raises:
        NotFound: no such agent.
        Conflict: the key was used with another content.
    """
    parameters = {
        "agent_id": agent_id,
        "role": new.role,
        "text": new.text,
        "tokens": new.tokens,
        "created_at": new.created_at,
        "chat": new.chat,
        "chat_note": new.chat_note,
        "expires_at": new.expires_at,
        "pictures": pictures.jsonb(new.pictures),
        "request": None if new.request is None else Jsonb(new.request),
        "request_id": ids.current().get("request_id"),
        "api_key": spending_key.get(),
        **envelope._asdict(),
    }
    try:
        async with database.tenant(tenant) as tx:
            row = await (await tx.execute(_POST, parameters)).fetchone()
            if row is not None:
                await pictures.keep(tx, tenant, new.pictures)
    except psycopg.errors.UniqueViolation:
        async with database.tenant(tenant) as tx:
            row = await _first_with_key(tx, agent_id, envelope)
    if row is None:
        raise no_agent(agent_id)
    return Posted(turn_from_row(row), row["model"], row["paused"])


async def recount(tx: Transaction, turn: TurnRow, tokens: int) -> None:
    """Correct the tokens of the message that began a turn."""
    await tx.execute(
        "UPDATE messages SET tokens = %s WHERE agent_id = %s AND position = %s",
        [tokens, turn.agent_id, turn.first_position],
    )


async def post_import(
    database: Database,
    tenant: str,
    agent_id: UUID,
    messages: Sequence[NewMessage],
    envelope: Envelope,
) -> TurnRow:
    """Store past messages, in order, as turns of their own that ask the model for no reply.

    Returns:
        The last of those turns: when it has ended, the whole import is worked in.

    Raises:
        NotFound: no such agent.
        Conflict: the key was used with another content.
    """
    parameters = {
        "agent_id": agent_id,
        "batches": -(-len(messages) // IMPORT_BATCH),
        "messages": len(messages),
        "request_id": ids.current().get("request_id"),
        **envelope._asdict(),
    }
    try:
        async with database.tenant(tenant) as tx:
            rows = await (await tx.execute(_POST_BATCHES, parameters)).fetchall()
            if not rows:
                raise no_agent(agent_id)
            await _insert_messages(tx, [turn_from_row(row) for row in rows], tenant, messages)
    except psycopg.errors.UniqueViolation:
        async with database.tenant(tenant) as tx:
            return turn_from_row(await _first_with_key(tx, agent_id, envelope))
    return turn_from_row(rows[-1])


async def get_turn(tx: Transaction, agent_id: UUID, turn: int) -> TurnRow:
    """Fetch one turn. Raises NotFound."""
    cursor = await tx.execute(
        f"SELECT {TURN_COLUMNS} FROM turns t WHERE agent_id = %s AND turn = %s", [agent_id, turn]
    )
    row = await cursor.fetchone()
    if row is None:
        raise NotFound(
            f"The agent has no turn {turn}.",
            hint="The answer to a message has its turn, as `turn`; they are counted from 1.",
        )
    return turn_from_row(row)


async def waiting_agents(tx: Transaction, at_most: int) -> list[tuple[UUID, str]]:
    """Agents (with their tenants) that have work and that nobody is serving."""
    cursor = await tx.execute("SELECT * FROM agents_waiting(%s)", [at_most])
    return [(row["agent_id"], row["tenant"]) for row in await cursor.fetchall()]


def turn_from_row(row: dict[str, Any]) -> TurnRow:
    usage = TokenUsage(row["prompt_tokens"], row["completion_tokens"], row["cached_tokens"])
    return TurnRow(**{name: row[name] for name in _TURN_FIELDS}, usage=usage)


async def _insert_messages(
    tx: Transaction, turns: Sequence[TurnRow], tenant: str, messages: Sequence[NewMessage]
) -> None:
    # COPY would be quicker, but Postgres refuses it under row-level security.
    places = [
        turns[index // IMPORT_BATCH].first_position + index % IMPORT_BATCH
        for index in range(len(messages))
    ]
    await tx.execute(
        """INSERT INTO messages (agent_id, position, tenant, role, content, tokens, created_at, chat,
                                 expires_at)
           SELECT %s, m.position, %s, m.role, m.content, m.tokens, coalesce(m.at, now()), m.chat,
                  m.expires_at
           FROM unnest(%s::bigint[], %s::text[], %b::text[], %s::integer[], %s::timestamptz[], %s::text[],
                       %s::timestamptz[])
                AS m (position, role, content, tokens, at, chat, expires_at)""",
        [
            turns[0].agent_id,
            tenant,
            places,
            [message.role for message in messages],
            [message.text for message in messages],
            [message.tokens for message in messages],
            [message.created_at for message in messages],
            [message.chat for message in messages],
            [message.expires_at for message in messages],
        ],
    )


async def _first_with_key(tx: Transaction, agent_id: UUID, envelope: Envelope) -> dict[str, Any]:
    cursor = await tx.execute(
        f"""SELECT {TURN_COLUMNS}, t.fingerprint, a.model, s.paused
            FROM turns t JOIN agents a ON a.id = t.agent_id JOIN agent_state s ON s.agent_id = a.id
            WHERE t.agent_id = %s AND t.idempotency_key = %s""",
        [agent_id, envelope.key],
    )
    row = await cursor.fetchone()
    if row is None:
        raise Conflict("The agent was deleted and made again meanwhile.")
    if row["fingerprint"] is None:
        raise Conflict(
            f"The message of the idempotency key {envelope.key!r} was deleted.",
            hint="Take a fresh key to say it again.",
        )
    if row["fingerprint"] != envelope.fingerprint:
        raise Conflict(
            f"The idempotency key {envelope.key!r} was used with another request.",
            hint="Take a fresh key for every new message.",
        )
    return row
