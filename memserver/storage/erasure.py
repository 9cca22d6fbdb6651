"""Erasing single messages with what was derived from them: calls, words, vectors, counts, and summaries that had them.

The row of the agent's state is locked first, then those of its index. So what runs beside it, a turn, a compaction
or an indexing, either comes before and is erased too, or finds that the history has another version.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from psycopg import sql

from memserver.errors import Conflict, NotFound
from memserver.storage import pictures
from memserver.storage.database import Transaction
from memserver.storage.inbox import PLACES_PER_TURN
from memserver.storage.jobs import Job, defer
from memserver.storage.missing import no_agent
from memserver.storage.rows import fetch_all, fetch_optional, fetch_value, fetch_values
from memserver.storage.turn_steps import erase_traces
from memserver.storage.watched import allow_long_statements

PLACEHOLDER = "[A message that stood here was deleted.]"
PLACEHOLDER_TOKENS = 24
NOTE = "[Messages were deleted. What they said is left out here.]"
"""In a summary that had taken them up."""
BEING_WRITTEN = "Messages were deleted: the summary is being written again."
REWRITE = "rewrite_summary"
"""The job that writes a summary again from what is left; its key is the agent."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Messages by their positions, and all messages of turns."""

    positions: Sequence[int] = ()
    turns: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Erasure:
    """How many messages were erased, and whether the summary is written again."""

    messages: int
    rewrites_summary: bool


@dataclass(frozen=True, slots=True)
class _Found:
    position: int
    role: str


async def erase(
    tx: Transaction, agent_id: UUID, wanted: Selection, *, redact: bool = False
) -> Erasure:
    """Erase messages of turns that have ended; what else the agent has stays. With `redact` a placeholder stays in each place.

    Raises:
        NotFound: no such agent, or not all of the messages are there; nothing is erased.
        Conflict: one is of a turn that has not ended; nothing is erased.
    """
    query = "SELECT tenant FROM agent_state WHERE agent_id = %s FOR UPDATE"
    tenant = await fetch_value(tx, query, [agent_id])
    if tenant is None:
        raise no_agent(agent_id)
    found = await find(tx, agent_id, wanted)
    positions = sorted(each.position for each in found)
    with allow_long_statements():
        await _erase_index(tx, agent_id, tenant, positions)
        await _erase_messages(tx, agent_id, positions, redact=redact)
    # What the system noted is in no summary.
    said = [each.position for each in found if each.role != "system"]
    outdated = await _outdate_summary(tx, agent_id, min(said)) if said else False
    if outdated:
        await defer(tx, rewriting_job(tenant, agent_id))
    await tx.execute(
        """UPDATE agent_state SET message_count = message_count - %(gone)s,
               stats_messages = least(stats_messages, message_count - %(gone)s),
               history_version = history_version + 1
           WHERE agent_id = %(agent_id)s""",
        {"agent_id": agent_id, "gone": 0 if redact else len(positions)},
    )
    return Erasure(len(positions), outdated)


def rewriting_job(tenant: str, agent_id: UUID) -> Job:
    return Job(REWRITE, tenant, {"agent_id": str(agent_id)}, key=str(agent_id))


async def find(tx: Transaction, agent_id: UUID, wanted: Selection) -> list[_Found]:
    """The messages that are meant.

    Raises:
        NotFound: not all of them are there.
        Conflict: one is of a turn that has not ended.
    """
    found = await fetch_all(
        tx,
        _Found,
        """SELECT position, role FROM messages
           WHERE agent_id = %(agent_id)s AND position = ANY (%(positions)s::bigint[])
           UNION
           SELECT m.position, m.role FROM unnest(%(first)s::bigint[], %(last)s::bigint[]) AS t (first, last)
           JOIN messages m ON m.agent_id = %(agent_id)s AND m.position BETWEEN t.first AND t.last""",
        {
            "agent_id": agent_id,
            "positions": list(wanted.positions),
            "first": [turn * PLACES_PER_TURN for turn in wanted.turns],
            "last": [(turn + 1) * PLACES_PER_TURN - 1 for turn in wanted.turns],
        },
    )
    await _check(tx, agent_id, found, wanted)
    return found


async def _check(
    tx: Transaction, agent_id: UUID, found: Sequence[_Found], wanted: Selection
) -> None:
    positions = {each.position for each in found}
    turns = {position // PLACES_PER_TURN for position in positions}
    missing = [f"message {each}" for each in wanted.positions if each not in positions]
    missing += [f"turn {each} with messages" for each in wanted.turns if each not in turns]
    if missing:
        raise NotFound(
            f"The agent has no {missing[0]}.",
            hint="GET /v1/agents/{agent}/messages lists the history. Nothing was deleted.",
        )
    query = """SELECT turn FROM turns WHERE agent_id = %s AND turn = ANY (%s::bigint[])
               AND state NOT IN ('done', 'failed')"""
    unfinished = await fetch_value(tx, query, [agent_id, sorted(turns)])
    if unfinished is not None:
        raise Conflict(
            f"The turn {unfinished} has not ended, so its messages can't be deleted.",
            hint="Cancel it by POST /v1/agents/{agent}/turns/{turn}/cancel, or wait until it has ended.",
        )


_KEEP_OTHERS = r"""
UPDATE recall_blocks b SET positions = k.positions, times = k.times, roles = k.roles, body = k.body
FROM (SELECT h.block, array_agg(h.positions[t.n] ORDER BY t.n) AS positions,
             array_agg(h.times[t.n] ORDER BY t.n) AS times,
             string_agg(substr(h.roles, t.n::integer, 1), '' ORDER BY t.n) AS roles,
             string_agg(t.text, E'\u0001' ORDER BY t.n) AS body
      FROM recall_blocks h, unnest(string_to_array(h.body, E'\u0001')) WITH ORDINALITY AS t (text, n)
      WHERE h.agent_id = %(agent_id)s AND h.positions && %(positions)s::bigint[]
        AND h.positions[t.n] <> ALL (%(positions)s::bigint[])
      GROUP BY h.block) k
WHERE b.agent_id = %(agent_id)s AND b.block = k.block
"""
"""Of a block that holds other messages too, those stay."""


async def _erase_index(
    tx: Transaction, agent_id: UUID, tenant: str, positions: Sequence[int]
) -> None:
    at = {"agent_id": agent_id, "positions": positions}
    if not await fetch_values(
        tx, "SELECT 1 FROM recall_index WHERE agent_id = %s FOR UPDATE", [agent_id]
    ):
        return  # no turn has ended yet that would have been indexed
    embedded = await fetch_values(
        tx,
        """SELECT table_name FROM recall_embeddings WHERE agent_id = %s
           ORDER BY model, dimension FOR UPDATE""",
        [agent_id],
    )
    for table in embedded:
        await tx.execute(
            sql.SQL(
                """WITH gone AS (
                       DELETE FROM {} WHERE agent_id = %(agent_id)s AND position = ANY (%(positions)s::bigint[])
                       RETURNING position)
                   UPDATE recall_embeddings
                   SET messages = messages - (SELECT count(DISTINCT position) FROM gone)
                   WHERE agent_id = %(agent_id)s AND table_name = %(table)s"""
            ).format(sql.Identifier(table)),
            {**at, "table": table},
        )
    await tx.execute(_KEEP_OTHERS, at)
    await tx.execute(
        "DELETE FROM recall_blocks WHERE agent_id = %(agent_id)s AND positions <@ %(positions)s::bigint[]",
        at,
    )
    # The shares of common words are counted again, where there are so many messages that it is done.
    await tx.execute(
        """WITH gone AS (
               DELETE FROM message_words WHERE agent_id = %(agent_id)s AND position = ANY (%(positions)s::bigint[])
               RETURNING 1
           ), uncounted AS (
               DELETE FROM message_word_shares WHERE agent_id = %(agent_id)s
           )
           UPDATE recall_index SET messages = messages - (SELECT count(*) FROM gone), counted = 0
           WHERE agent_id = %(agent_id)s""",
        at,
    )
    await tx.execute("SELECT request_indexing(%s, %s)", [agent_id, tenant])


async def _erase_messages(
    tx: Transaction, agent_id: UUID, positions: Sequence[int], *, redact: bool
) -> None:
    """Erase the messages with their calls, and what their turns say of them."""
    cursor = await tx.execute(
        """DELETE FROM messages WHERE agent_id = %s AND position = ANY (%s::bigint[])
           RETURNING position, tenant, created_at, pictures""",
        [agent_id, positions],
    )
    gone = await cursor.fetchall()
    await pictures.release(tx, [each["digest"] for row in gone for each in row["pictures"] or ()])
    if redact:
        await tx.execute(
            """INSERT INTO messages (agent_id, position, tenant, role, content, tokens, created_at)
               SELECT %s, g.position, %s, 'system', %s, %s, g.at
               FROM unnest(%s::bigint[], %s::timestamptz[]) AS g (position, at)""",
            [
                agent_id,
                gone[0]["tenant"],
                PLACEHOLDER,
                PLACEHOLDER_TOKENS,
                [row["position"] for row in gone],
                [row["created_at"] for row in gone],
            ],
        )
    # What a later message's prompt quotes of an earlier chat.
    await tx.execute(
        """UPDATE messages SET chat_note = split_part(chat_note, E'\\n', 1)
           WHERE agent_id = %s AND position > %s AND chat_note LIKE E'%%\\n%%'""",
        [agent_id, min(positions, default=0)],
    )
    await erase_traces(tx, agent_id, min(positions, default=0) // PLACES_PER_TURN)
    # A key without a fingerprint is that of a message that was deleted. An error may quote it.
    await tx.execute(
        """UPDATE turns SET fingerprint = NULL, request = NULL,
               error = error || '{"message": "The turn failed; why was deleted with its messages.", "hint": ""}'
           WHERE agent_id = %s AND turn = ANY (%s::bigint[])""",
        [agent_id, sorted({position // PLACES_PER_TURN for position in positions})],
    )


async def _outdate_summary(tx: Transaction, agent_id: UUID, first: int) -> bool:
    """Put the summary of what stands before a position in the place of those that may have taken it up.

    Returns whether there were any.
    """
    cursor = await tx.execute(
        """WITH gone AS (
               DELETE FROM summaries WHERE agent_id = %(agent_id)s AND until > %(first)s
               RETURNING until, tenant
           )
           INSERT INTO summaries (agent_id, until, tenant, text, tokens, evicted, method, failure, outdated)
           SELECT %(agent_id)s, g.until, g.tenant, k.text, length(k.text) / 4, 0, 'extractive',
                  %(failure)s, true
           FROM (SELECT max(until) AS until, min(tenant) AS tenant FROM gone) g,
                LATERAL (SELECT coalesce((
                    SELECT CASE WHEN position(%(note)s IN s.text) > 0 THEN s.text
                                ELSE s.text || E'\n\n' || %(note)s END
                    FROM summaries s WHERE s.agent_id = %(agent_id)s AND s.until <= %(first)s
                    ORDER BY s.until DESC LIMIT 1), %(note)s) AS text) k
           WHERE g.until IS NOT NULL""",
        {"agent_id": agent_id, "first": first, "note": NOTE, "failure": BEING_WRITTEN},
    )
    return cursor.rowcount > 0


@dataclass(frozen=True, slots=True)
class OutdatedSummary:
    """What a summary has to be written again from: one that holds, and what was said after it.

    Attributes:
        version: of the history.
        text: of the summary that holds; empty: there is none.
        since: where that ends.
        until: where the summary has to end, which is where the queue starts.
        outdated_from: where the first one ends that doesn't hold.
    """

    version: int
    text: str
    since: int
    until: int
    outdated_from: int


async def find_outdated(tx: Transaction, agent_id: UUID) -> OutdatedSummary | None:
    """Why an agent's summary has to be written again, if it has to be."""
    return await fetch_optional(
        tx,
        OutdatedSummary,
        """SELECT s.history_version AS version, coalesce(k.text, '') AS text, coalesce(k.until, 0) AS since,
                  o.last AS until, o.first AS outdated_from
           FROM agent_state s
           JOIN LATERAL (SELECT min(until) FILTER (WHERE outdated) AS first, max(until) AS last
                         FROM summaries WHERE agent_id = s.agent_id) o ON o.first IS NOT NULL
           LEFT JOIN LATERAL (SELECT text, until FROM summaries
                              WHERE agent_id = s.agent_id AND until < o.first
                              ORDER BY until DESC LIMIT 1) k ON true
           WHERE s.agent_id = %s""",
        [agent_id],
    )


@dataclass(frozen=True, slots=True)
class Rewritten:
    text: str
    tokens: int
    method: str
    failure: str | None


async def replace_outdated(
    tx: Transaction, agent_id: UUID, outdated: OutdatedSummary, new: Rewritten
) -> bool:
    """Store the summary that was written again; whether nothing had changed since it was found outdated.

    The history gets a new version, so that no compaction that has read the old summary is committed.
    """
    tenant = await fetch_value(
        tx,
        "SELECT tenant FROM agent_state WHERE agent_id = %s AND history_version = %s FOR UPDATE",
        [agent_id, outdated.version],
    )
    query = "SELECT max(until) FROM summaries WHERE agent_id = %s"
    if tenant is None or await fetch_value(tx, query, [agent_id]) != outdated.until:
        return False
    await tx.execute(
        "UPDATE agent_state SET history_version = history_version + 1 WHERE agent_id = %s",
        [agent_id],
    )
    await tx.execute(
        "DELETE FROM summaries WHERE agent_id = %s AND until >= %s",
        [agent_id, outdated.outdated_from],
    )
    await tx.execute(
        """INSERT INTO summaries (agent_id, until, tenant, text, tokens, evicted, method, failure)
           VALUES (%s, %s, %s, %s, %s, 0, %s, %s)""",
        [agent_id, outdated.until, tenant, new.text, new.tokens, new.method, new.failure],
    )
    return True
