"""Another agent with the memory of one, whose history ends at a message: rows copied in the database.

All is copied by one statement, which sees one moment, so that neither a turn nor an edit beside it tears the copy. The
source's sections and collection are held meanwhile, nothing else of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from psycopg import sql

from memserver.errors import Conflict, NotFound
from memserver.storage import agents, collections, erasure, jobs, languages, passages, pictures
from memserver.storage.agents import AgentRow
from memserver.storage.database import Transaction
from memserver.storage.ids import new_id
from memserver.storage.inbox import PLACES_PER_TURN
from memserver.storage.jobs import Job
from memserver.storage.missing import no_agent, refuse_taken_name
from memserver.storage.rows import fetch_optional, fetch_value, fetch_values
from memserver.storage.watched import allow_long_statements

MOST_SECTIONS = 50


@dataclass(frozen=True, slots=True)
class _Copy:
    """Rows of a table, `x`, that are copied: which, and what the copies have instead of their columns' values."""

    table: str
    which: str
    instead: Mapping[str, str]


_OF_SOURCE = "x.agent_id = %(source)s"
_AGENT = {"agent_id": "%(id)s::uuid"}
_UNTIL = f"{_OF_SOURCE} AND x.position <= %(at)s"
# What is indexed ends before the first block that goes beyond the message; a job indexes the rest.
_WHOLE = "x.positions[cardinality(x.positions)] <= %(at)s"
_CUT = f"""least(%(end)s, (SELECT min(x.positions[1]) FROM recall_blocks x WHERE {_OF_SOURCE} AND NOT {_WHOLE}))"""
# Where the queue started then: where the newest summary ends that had not taken the message up.
_QUEUE_START = f"""greatest(
    (SELECT max(until) FROM summaries x WHERE {_OF_SOURCE} AND until <= %(summarised)s),
    CASE WHEN x.queue_start <= %(summarised)s THEN x.queue_start END, 0)"""
_COPIES = (
    _Copy(
        "collections",
        "x.id = %(from_collection)s",
        {
            "id": "%(collection)s::uuid",
            "name": "%(name)s",
            "vectors_table": "%(vectors)s",
            "created_at": "now()",
        },
    ),
    _Copy(
        "passages",
        "x.collection_id = %(from_collection)s",
        {"collection_id": "%(collection)s::uuid"},
    ),
    _Copy(
        "collection_words",
        "x.collection_id = %(from_collection)s",
        {"collection_id": "%(collection)s::uuid"},
    ),
    _Copy(
        "agents",
        "x.id = %(source)s",
        {
            "id": "%(id)s::uuid",
            "name": "%(name)s",
            "collection_id": "%(collection)s::uuid",
            "created_at": "now()",
            "updated_at": "now()",
            "template_id": "NULL",
            "template_user": "NULL",
        },
    ),
    _Copy(
        "agent_state",
        _OF_SOURCE,
        {
            **_AGENT,
            "next_turn": "%(turn)s + 1",
            "done_turn": "%(turn)s",
            "lease_owner": "NULL",
            "lease_epoch": "0",
            "lease_expires_at": "NULL",
            "queue_start": _QUEUE_START,
            "pressure_warned": "false",
            "message_count": f"(SELECT count(*) FROM messages x WHERE {_UNTIL})",
            "stats_messages": f"(SELECT count(*) FROM messages x WHERE {_UNTIL})",
            "paused": "false",
        },
    ),
    _Copy("agent_collections", _OF_SOURCE, _AGENT),
    _Copy("agent_tools", _OF_SOURCE, _AGENT),
    _Copy(
        "sections",
        "x.id IN (SELECT old FROM own_sections)",
        {"id": "(SELECT new FROM own_sections WHERE old = x.id)", "version": "1"},
    ),
    _Copy(
        "agent_sections",
        _OF_SOURCE,
        {
            **_AGENT,
            "section_id": "coalesce((SELECT new FROM own_sections WHERE old = x.section_id), x.section_id)",
        },
    ),
    _Copy(
        "turns",
        f"{_OF_SOURCE} AND x.turn <= %(turn)s",
        {**_AGENT, "idempotency_key": "NULL", "fingerprint": "NULL"},
    ),
    _Copy("messages", _UNTIL, _AGENT),
    _Copy("tool_calls", _UNTIL, _AGENT),
    _Copy("summaries", f"{_OF_SOURCE} AND x.until <= %(summarised)s", _AGENT),
    _Copy(
        "recall_index",
        _OF_SOURCE,
        {
            **_AGENT,
            "waiting": "true",
            "since": "now()",
            "urgent": "false",
            "indexed_to": f"least(x.indexed_to, {_CUT})",
            "last_time": f"""coalesce((SELECT max(x.last_time) FROM recall_blocks x
                WHERE {_OF_SOURCE} AND {_WHOLE}), '-infinity')""",
            "messages": f"(SELECT count(*) FROM message_words x WHERE {_OF_SOURCE} AND x.position < {_CUT})",
            "block": f"""(SELECT coalesce(max(x.block), -1) + 1 FROM recall_blocks x
                WHERE {_OF_SOURCE} AND {_WHOLE})""",
            "block_holds": "0",
            "block_bytes": "0",
        },
    ),
    _Copy("recall_blocks", f"{_OF_SOURCE} AND {_WHOLE}", _AGENT),
    _Copy("message_words", f"{_OF_SOURCE} AND x.position < {_CUT}", _AGENT),
    _Copy("message_word_shares", _OF_SOURCE, _AGENT),
)
_SECTIONS = """own_sections AS (
    SELECT l.section_id AS old, (%(section_ids)s::uuid[])[row_number() OVER (ORDER BY l.place)] AS new
    FROM agent_sections l JOIN sections s ON s.id = l.section_id
    WHERE l.agent_id = %(source)s AND s.name IS NULL AND NOT EXISTS (
        SELECT 1 FROM agent_sections o WHERE o.section_id = l.section_id AND o.agent_id <> l.agent_id)
), first_edits AS (
    INSERT INTO section_edits (section_id, version, tenant, content, actor, agent_id)
    SELECT o.new, 1, s.tenant, s.content, 'api', %(id)s FROM own_sections o JOIN sections s ON s.id = o.old
)"""


@dataclass(frozen=True, slots=True)
class _Source:
    tenant: str
    name: str
    done_turn: int
    collection_id: UUID


# What was cancelled has ended, though it is not passed over yet.
_SOURCE = """
SELECT a.tenant, a.name, a.collection_id, (
    SELECT coalesce(min(t.turn), s.next_turn) - 1 FROM turns t
    WHERE t.agent_id = s.agent_id AND t.turn > s.done_turn AND t.state NOT IN ('done', 'failed')) AS done_turn
FROM agents a JOIN agent_state s ON s.agent_id = a.id WHERE a.id = %s
"""


async def fork(
    tx: Transaction, source_id: UUID, *, name: str | None = None, position: int | None = None
) -> AgentRow:
    """Copy an agent up to the message at `position`, or up to the end of its last turn that has ended.

    The history ends there, with the summary and the queue that it had then. Working context and archival storage are as
    they are now. Sections and collections that others share are shared with the copy, too. Timers, documents' files, what
    waits in the inbox and a turn that runs are not copied. Without a `name` one is made up.

    Raises:
        NotFound: no such agent, or no such message.
        Conflict: the name is taken, or the message's turn has not ended.
    """
    source = await fetch_optional(tx, _Source, _SOURCE, [source_id])
    if source is None:
        raise no_agent(source_id)
    at = (source.done_turn + 1) * PLACES_PER_TURN - 1
    if position is not None:
        await _check(tx, source_id, position, at)
        at = position
    await _lock_shared(tx, source_id, source.collection_id)
    copy, turn = new_id(), min(at // PLACES_PER_TURN, source.done_turn)
    collection = await collections.get(tx, source.collection_id)
    parameters = {
        "id": copy,
        "source": source_id,
        "at": at,
        "summarised": at if position is not None else at + 1,
        "turn": turn,
        "end": (turn + 1) * PLACES_PER_TURN,
        "name": name or f"{source.name[:180]}-{copy.hex[-8:]}",
        "collection": new_id(),
        "from_collection": collection.id,
        "vectors": await fetch_value(
            tx, "SELECT vectors_table(%s, %s)", [collection.embedding_model, collection.dimension]
        ),
        "section_ids": [new_id() for _ in range(MOST_SECTIONS)],
    }
    statement = await _statement(tx, source_id, collection.vectors_table, parameters["vectors"])
    with allow_long_statements(), refuse_taken_name("an agent", parameters["name"]):
        await tx.execute(statement, parameters)
    await _follow_up(tx, copy, source.tenant)
    return await agents.get(tx, copy)


async def _lock_shared(tx: Transaction, source_id: UUID, collection_id: UUID) -> None:
    """What the copy has together with others, locked in the order in which others lock it."""
    await tx.execute(
        """SELECT 1 FROM sections s JOIN agent_sections l ON l.section_id = s.id
           WHERE l.agent_id = %s ORDER BY s.id FOR SHARE OF s""",
        [source_id],
    )
    await tx.execute("SELECT 1 FROM collections WHERE id = %s FOR SHARE", [collection_id])
    await tx.execute(
        "SELECT 1 FROM pictures WHERE digest = ANY (%s) ORDER BY digest FOR SHARE",
        [await pictures.shown_by(tx, source_id)],
    )


async def _check(tx: Transaction, source_id: UUID, position: int, end: int) -> None:
    query = "SELECT 1 FROM messages WHERE agent_id = %s AND position = %s"
    if await fetch_value(tx, query, [source_id, position]) is None:
        raise NotFound(
            f"The agent has no message {position}.",
            hint="GET /v1/agents/{agent}/messages lists the history.",
        )
    if position > end:
        raise Conflict(
            f"The turn {position // PLACES_PER_TURN} has not ended, so no fork can end in it.",
            hint="Cancel it, wait until it has ended, or leave the position out.",
        )


async def _statement(
    tx: Transaction, source_id: UUID, vectors: str, to_vectors: str
) -> sql.Composed:
    """The one statement that copies all: of each table whatever columns it has."""
    query = "SELECT DISTINCT table_name FROM recall_embeddings WHERE agent_id = %s"
    embedded: list[str] = await fetch_values(tx, query, [source_id])
    counts = "".join(
        f" WHEN '{table}' THEN (SELECT count(DISTINCT x.position) FROM {table} x WHERE {_UNTIL})"
        for table in embedded
    )
    how_far = {
        "embedded_to": "least(x.embedded_to, %(end)s)",
        "messages": f"CASE x.table_name{counts} END" if counts else "0",
        "large_to": "0",
    }
    copies = [
        *_COPIES,
        _Copy(
            vectors,
            "x.collection_id = %(from_collection)s",
            {"collection_id": "%(collection)s::uuid"},
        ),
        _Copy("recall_embeddings", _OF_SOURCE, {**_AGENT, **how_far}),
        *(_Copy(table, _UNTIL, {**_AGENT, "large": "false"}) for table in embedded),
    ]
    cursor = await tx.execute(
        """SELECT t.name, array_agg(a.attname::text ORDER BY a.attnum) AS columns
           FROM unnest(%s::text[]) AS t (name) JOIN pg_attribute a ON a.attrelid = to_regclass(t.name)
           WHERE a.attnum > 0 AND NOT a.attisdropped GROUP BY t.name""",
        [[each.table for each in copies]],
    )
    columns = {row["name"]: row["columns"] for row in await cursor.fetchall()}
    inserts = [
        sql.SQL(
            "{step} AS (INSERT INTO {into} ({columns}) SELECT {values} FROM {table} x WHERE {which})"
        ).format(
            step=sql.Identifier(f"copied_{number}"),
            into=sql.Identifier(to_vectors if each.table == vectors else each.table),
            columns=sql.SQL(", ").join(map(sql.Identifier, columns[each.table])),
            values=sql.SQL(", ").join(
                sql.SQL(each.instead[name]) if name in each.instead else sql.Identifier("x", name)
                for name in columns[each.table]
            ),
            table=sql.Identifier(each.table),
            which=sql.SQL(each.which),
        )
        for number, each in enumerate(copies)
    ]
    steps = sql.SQL(", ").join([sql.SQL(_SECTIONS), *inserts])
    return sql.SQL("WITH {} SELECT 1").format(steps)


async def _follow_up(tx: Transaction, copy: UUID, tenant: str) -> None:
    """Queue what was still to be done with the source's memory, for the copy's."""
    own = await collections.own_of(tx, copy)
    if own.relexed_to is not None:
        await languages.queue(tx, own)
    if passages.needs_upkeep(own, own.passage_count):
        key = str(own.id)
        await jobs.defer(tx, Job(passages.UPKEEP_JOB, tenant, {"collection": key}, key=key))
    await tx.execute("SELECT request_indexing(%s, %s)", [copy, tenant])
    if await erasure.find_outdated(tx, copy) is not None:
        await jobs.defer(tx, erasure.rewriting_job(tenant, copy))
