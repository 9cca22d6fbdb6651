"""The index of what was said, by agent: how far it goes, and making it go on.

What is indexed is a prefix of the history. So how far it goes is one number, which is written together with what
is indexed: after a crash at any point the next one continues exactly there. The migration 0017 has the tables.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from memserver.storage.collections import AUTO
from memserver.storage.database import Transaction
from memserver.storage.inbox import PLACES_PER_TURN
from memserver.storage.jobs import Job, defer
from memserver.storage.languages import choose
from memserver.storage.rows import fetch_value, fetch_values

JOB = "index_messages"
"""The job that indexes the messages of a tenant's agents; its key is the tenant."""
PRIORITY = -10
AGENTS_AT_ONCE = 50
DETECTED_BY = 1_000  # characters of a message that its language is detected by


@dataclass(slots=True)
class Pending:
    """The next messages of an agent that aren't indexed, in order."""

    agent_id: UUID
    reached: int  # how far the index goes: positions before it are in
    settled: int  # before this position nothing more will come
    version: int  # of the history: another one after something was deleted
    languages: Sequence[str] = ()  # that occur in what is indexed
    # Of the agent's own collection, and so of its messages; auto: each has its own
    language: str = AUTO
    positions: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    until: int = 0  # up to which position these are all


PENDING = f"""
SELECT w.agent_id, w.reached, w.settled, w.version, w.languages, w.language, m.position, m.content
FROM (SELECT i.agent_id, {{reached}} AS reached, i.languages,
             (SELECT c.language FROM agents a JOIN collections c ON c.id = a.collection_id
              WHERE a.id = i.agent_id) AS language,
             (s.done_turn + 1) * {PLACES_PER_TURN} AS settled, s.history_version AS version
      FROM recall_index i JOIN agent_state s ON s.agent_id = i.agent_id {{joined}}
      WHERE i.waiting AND {{reached}} < (s.done_turn + 1) * {PLACES_PER_TURN}
      ORDER BY i.agent_id LIMIT {AGENTS_AT_ONCE}) w
LEFT JOIN LATERAL (
    SELECT position, left(content, %(characters)s) AS content FROM messages
    WHERE agent_id = w.agent_id AND position >= w.reached AND position < w.settled
      AND role <> 'system' AND content <> ''
    ORDER BY position LIMIT %(limit)s) m ON true
ORDER BY w.agent_id, m.position LIMIT %(limit)s
"""
"""Bounded in rows and characters: a message may have a million."""
_WITHOUT_WORDS = PENDING.format(reached="i.indexed_to", joined="")


_OF_AGENT = ("agent_id", "reached", "settled", "version", "languages", "language")


async def is_due(tx: Transaction, quiet: float, at_latest: float) -> bool:
    """Whether what the tenant's agents said is to be indexed now.

    It is after `quiet` seconds without a turn's end, at the latest after `at_latest`, or when somebody waits.
    """
    due = await fetch_value(
        tx,
        """SELECT coalesce(bool_or(i.urgent OR i.since < now() - make_interval(secs => %(at_latest)s))
                  OR NOT coalesce(bool_or(t.finished_at > now() - make_interval(secs => %(quiet)s)), false),
                  true) AS due
           FROM recall_index i JOIN agent_state s ON s.agent_id = i.agent_id
           LEFT JOIN turns t ON t.agent_id = s.agent_id AND t.turn = s.done_turn
           WHERE i.waiting""",
        {"quiet": quiet, "at_latest": at_latest},
    )
    return bool(due)


async def without_words(tx: Transaction, limit: int) -> list[Pending]:
    """The next messages whose words aren't indexed, at most `limit` together, of agents that wait for it."""
    parameters = {"limit": limit, "characters": DETECTED_BY}
    cursor = await tx.execute(_WITHOUT_WORDS.encode(), parameters)
    return group_pending(await cursor.fetchall(), limit)


def group_pending(rows: Sequence[dict[str, object]], limit: int) -> list[Pending]:
    """Rows of PENDING by agent: those whose next messages are all there; at least one agent, if there are rows."""
    found: dict[object, Pending] = {}
    for row in rows:
        agent = found.get(row["agent_id"])
        if agent is None:
            values = {name: row[name] for name in _OF_AGENT}
            agent = found[row["agent_id"]] = Pending(**values)  # type: ignore[arg-type]
            agent.until = agent.settled
        if row["position"] is not None:
            agent.positions.append(row["position"])  # type: ignore[arg-type]
            agent.texts.append(row["content"])  # type: ignore[arg-type]
    agents = list(found.values())
    if len(rows) == limit and len(agents) > 1:
        agents.pop()  # it may have more
    for agent in agents:
        if len(agent.positions) == limit:
            agent.until = agent.positions[-1] + 1
    return agents


async def index_words(tx: Transaction, pending: Pending, detected: Sequence[str]) -> None:
    """Index the texts and words of an agent's next messages, unless another one has meanwhile or some were deleted.

    `detected`: the language of each, as Postgres names its text search configurations.
    """
    if not await lock_unchanged(tx, [pending]):
        return
    lexed_in, present = await choose(tx, pending.language, pending.languages, detected)
    if pending.language != AUTO and pending.language not in present:
        present = [*present, pending.language]
    await tx.execute(
        "SELECT index_messages(%s, %s::bigint[], %s::text[], %s::text[], %s)",
        [pending.agent_id, pending.positions, lexed_in, present, pending.until],
    )


async def lock_unchanged(tx: Transaction, pending: Sequence[Pending]) -> frozenset[UUID]:
    """The agents of whose history nothing was deleted since it was read; until the transaction ends nothing is."""
    agents = [each.agent_id for each in pending]
    # In the order in which an agent is deleted: what is inserted locks the agent's row too.
    for query in (
        "SELECT 1 FROM agents WHERE id = ANY (%s) ORDER BY id FOR KEY SHARE",
        "SELECT 1 FROM recall_index WHERE agent_id = ANY (%s) ORDER BY agent_id FOR UPDATE",
    ):
        await tx.execute(query, [agents])
    query = """SELECT agent_id FROM agent_state JOIN unnest(%s::uuid[], %s::bigint[]) AS p (agent_id, version)
               USING (agent_id) WHERE history_version = p.version"""
    return frozenset(await fetch_values(tx, query, [agents, [each.version for each in pending]]))


async def finish(tx: Transaction, model: str | None, dimension: int) -> None:
    """Note which of the tenant's agents are indexed to the end of what was said.

    `model`: the embedding model whose vectors belong to it; None: none.
    """
    await tx.execute("SELECT count_common_words()")
    # Locked first: what has ended a turn is then seen by the second statement, and who ends one later sees
    # whether the agent still waits.
    done = await fetch_values(
        tx,
        f"""SELECT s.agent_id FROM recall_index i JOIN agent_state s ON s.agent_id = i.agent_id
            WHERE i.waiting AND i.indexed_to >= (s.done_turn + 1) * {PLACES_PER_TURN}
            ORDER BY s.agent_id FOR SHARE OF s""",
    )
    if not done:
        return
    await tx.execute(
        f"""UPDATE recall_index i SET waiting = false FROM agent_state s
            WHERE i.agent_id = ANY (%(done)s) AND s.agent_id = i.agent_id
              AND i.indexed_to >= (s.done_turn + 1) * {PLACES_PER_TURN}
              AND (%(model)s::text IS NULL OR EXISTS (
                  SELECT 1 FROM recall_embeddings e
                  WHERE e.agent_id = i.agent_id AND e.model = %(model)s AND e.dimension = %(dimension)s
                    AND e.embedded_to >= (s.done_turn + 1) * {PLACES_PER_TURN}))""",
        {"done": done, "model": model, "dimension": dimension},
    )


async def request(tx: Transaction, agent_id: UUID) -> None:
    """Have an agent's history indexed, however busy its tenant is; nothing if there is no such agent."""
    await tx.execute("SELECT request_indexing(id, tenant) FROM agents WHERE id = %s", [agent_id])
    query = """UPDATE recall_index SET urgent = true WHERE agent_id = %s AND NOT urgent
               RETURNING tenant"""
    tenant = await fetch_value(tx, query, [agent_id])
    if tenant is None:
        return
    # A job for later is found by looking; a new one is notified at once.
    await tx.execute(
        """DELETE FROM procrastinate_jobs
           WHERE queueing_lock = 'index_messages:' || %s AND status = 'todo' AND scheduled_at > now()""",
        [tenant],
    )
    await defer(tx, Job(JOB, tenant, key=tenant, priority=PRIORITY))
