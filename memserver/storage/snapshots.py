"""What a turn and a look at an agent's context both read of the agent, in one statement."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from memserver.messages import MemorySection
from memserver.storage.agents import AgentRow
from memserver.storage.database import Transaction
from memserver.storage.inbox import FIRST_WAITING, PLACES_PER_TURN
from memserver.storage.tools import GRANTS_COLUMN, Grant, grants_from_row


@dataclass(frozen=True, slots=True)
class AgentState:
    """The counters of an agent.

    The `stats_` ones are what the prompt says of the memory. That of messages is renewed with an edit or an eviction
    only, so that the prompt's beginning stays the same between those; that of passages changes with the collections
    that the agent reads. `token_scale` is the model's tokens for each one that we count; None until its usage has
    shown that, and again for another model. `history_version` grows when something that was said is deleted.
    """

    queue_start: int
    pressure_warned: bool
    token_scale: float | None
    message_count: int
    stats_messages: int
    stats_passages: int
    stats_edited_at: datetime
    history_version: int


@dataclass(frozen=True, slots=True)
class AgentSnapshot:
    """An agent and its memories at one moment, apart from the queue; `summary` is empty if there is none."""

    agent: AgentRow
    state: AgentState
    sections: tuple[MemorySection, ...]
    summary: str
    summary_failure: str | None
    grants: tuple[Grant, ...]


SNAPSHOT_COLUMNS = f"""
    {GRANTS_COLUMN},
    a.id, a.name, a.model, a.system_prompt, a.options, a.metadata, a.collection_id,
    a.created_at AS agent_created_at, a.updated_at,
    s.agent_id, s.tenant, s.lease_owner, s.lease_epoch, s.queue_start, s.pressure_warned,
    CASE WHEN s.token_scale_model IS NOT DISTINCT FROM a.model THEN s.token_scale END AS token_scale,
    s.message_count, s.stats_messages, s.history_version,
    (SELECT sum(c.passage_count)::bigint FROM collections_of(a.id) c) AS stats_passages,
    greatest(s.stats_edited_at,
             (SELECT max(c.edited_at) FROM collections_of(a.id) c)) AS stats_edited_at,
    (SELECT coalesce(json_agg(json_build_object(
                'name', l.name, 'text', x.content, 'limit', x.character_limit,
                'description', x.description, 'read_only', l.read_only) ORDER BY l.place), '[]')
     FROM agent_sections l JOIN sections x ON x.id = l.section_id
     WHERE l.agent_id = s.agent_id) AS sections,
    (SELECT json_build_object('text', y.text, 'failure', y.failure) FROM summaries y
     WHERE y.agent_id = s.agent_id ORDER BY y.until DESC LIMIT 1) AS summary
"""


async def read_snapshot(
    tx: Transaction, agent_id: UUID, *, done_only: bool = False
) -> tuple[AgentSnapshot, int] | None:
    """An agent outside of a turn, and the position after its queue's last message; None if it is unknown.

    `done_only`: the queue ends with the last turn that has ended; else with the last one that was started.
    """
    last = "s.done_turn + 1" if done_only else FIRST_WAITING
    cursor = await tx.execute(
        f"""SELECT {SNAPSHOT_COLUMNS}, ({last}) * {PLACES_PER_TURN} AS queue_end
            FROM agent_state s JOIN agents a ON a.id = s.agent_id WHERE s.agent_id = %s""",
        [agent_id],
    )
    row = await cursor.fetchone()
    return None if row is None else (snapshot_from_row(row), row["queue_end"])


def snapshot_from_row(row: dict[str, Any]) -> AgentSnapshot:
    agent = AgentRow(
        id=row["id"],
        tenant=row["tenant"],
        name=row["name"],
        model=row["model"],
        system_prompt=row["system_prompt"],
        options=row["options"],
        metadata=row["metadata"],
        collection_id=row["collection_id"],
        created_at=row["agent_created_at"],
        updated_at=row["updated_at"],
    )
    summary = row["summary"] or {}
    return AgentSnapshot(
        agent=agent,
        state=AgentState(**{name: row[name] for name in AgentState.__dataclass_fields__}),
        sections=tuple(MemorySection(**section) for section in row["sections"]),
        summary=summary.get("text", ""),
        summary_failure=summary.get("failure"),
        grants=grants_from_row(row),
    )
