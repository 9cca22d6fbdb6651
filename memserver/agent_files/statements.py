"""Agents as a whole: reading all that one has, page by page, and writing it for a new one.

Owns the statements; what is in an agent file, and in which order, is this room's other files' business. Only turns that have
ended are read.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from memserver.errors import AgentFileCorrupt, Conflict
from memserver.messages import JsonObject
from memserver.storage.database import Transaction
from memserver.storage.inbox import PLACES_PER_TURN
from memserver.storage.missing import no_agent

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Pages:
    """A list that is read page by page: rows after %(after)s, in the order of a column that begins with `first`."""

    key: str
    first: Any
    query: str


PAGES = {
    # Up to the version that was read with the section.
    "edits": Pages(
        "version",
        0,
        """SELECT version, content AS text, actor, agent_id, position, restores, created_at
           FROM section_edits
           WHERE section_id = %(section_id)s AND version > %(after)s
                 AND version BETWEEN %(oldest)s AND %(newest)s
           ORDER BY version LIMIT %(limit)s""",
    ),
    "summaries": Pages(
        "until",
        -1,
        """SELECT until, text, tokens, evicted, method, failure, outdated, created_at FROM summaries
           WHERE agent_id = %(agent_id)s AND until > %(after)s AND until <= %(end)s
           ORDER BY until LIMIT %(limit)s""",
    ),
    "turns": Pages(
        "turn",
        0,
        """SELECT turn, kind, state, steps, attempts, stop_reason, error, prompt_tokens,
                  completion_tokens, cached_tokens, idempotency_key, fingerprint, created_at,
                  started_at, finished_at
           FROM turns WHERE agent_id = %(agent_id)s AND turn > %(after)s AND turn <= %(done_turn)s
           ORDER BY turn LIMIT %(limit)s""",
    ),
    "messages": Pages(
        "position",
        -1,
        """SELECT m.position, m.role, m.content AS text, m.thought, m.tokens, m.created_at, m.fields,
                  m.chat, m.chat_note, m.pictures, m.expires_at, c.call_id, c.name, c.arguments, c.state, c.result, c.waits_for, c.answer,
                  c.created_at AS called_at, c.finished_at
           FROM messages m
           LEFT JOIN tool_calls c ON c.agent_id = m.agent_id AND c.position = m.position
           WHERE m.agent_id = %(agent_id)s AND m.position > %(after)s AND m.position < %(end)s
           ORDER BY m.position LIMIT %(limit)s""",
    ),
    "pictures": Pages(
        "digest",
        "",
        """SELECT p.digest, p.data FROM pictures p
           WHERE p.digest > %(after)s AND p.digest IN (
               SELECT s->>'digest' FROM messages m, jsonb_array_elements(m.pictures) s
               WHERE m.agent_id = %(agent_id)s AND m.pictures IS NOT NULL AND m.position < %(end)s)
           ORDER BY p.digest LIMIT least(%(limit)s, 4)""",
    ),
    "passages": Pages(
        "id",
        UUID(int=0),
        """SELECT id, number, content AS text, tags, metadata, created_at, updated_at, expires_at
           FROM passages WHERE collection_id = %(collection_id)s AND id > %(after)s
           ORDER BY id LIMIT %(limit)s""",
    ),
    "timers": Pages(
        "id",
        UUID(int=0),
        """SELECT id, text, due FROM timers
           WHERE agent_id = %(agent_id)s AND id > %(after)s ORDER BY id LIMIT %(limit)s""",
    ),
}


@dataclass(frozen=True, slots=True)
class Whole:
    """An agent without what may be long, as it stood at one moment."""

    agent: dict[str, Any]
    state: dict[str, Any]
    collections: list[str]
    sections: Rows
    tools: Rows

    @property
    def end(self) -> int:
        """The position after all turns that have ended."""
        done: int = self.state["done_turn"]
        return (done + 1) * PLACES_PER_TURN


async def read_whole(tx: Transaction, agent_id: UUID) -> Whole:
    """Read it. Raises NotFound."""
    found = await _all(
        tx,
        """SELECT a.id, a.name, a.model, a.system_prompt, a.options, a.metadata, a.created_at,
                  a.updated_at, a.collection_id, c.language, c.description AS collection_description,
                  c.metadata AS collection_metadata, c.embedding_model, c.dimension, c.vectors_table
           FROM agents a JOIN collections c ON c.id = a.collection_id WHERE a.id = %s""",
        agent_id,
    )
    if not found:
        raise no_agent(agent_id)
    [state] = await _all(
        tx,
        """SELECT done_turn, queue_start, pressure_warned, token_scale, token_scale_model,
                  memory_edited_at, stats_messages, stats_edited_at,
                  coalesce((SELECT max(until) FROM summaries y
                            WHERE y.agent_id = s.agent_id AND y.until <= (s.done_turn + 1) * 1000), 0)
                      AS summarised
           FROM agent_state s WHERE agent_id = %s""".replace("1000", str(PLACES_PER_TURN)),
        agent_id,
    )
    attached = await _all(
        tx,
        """SELECT c.name FROM agent_collections l JOIN collections c ON c.id = l.collection_id
           WHERE l.agent_id = %s ORDER BY c.name""",
        agent_id,
    )
    sections = await _all(
        tx,
        """SELECT x.id, l.name, x.content AS text, x.character_limit AS "limit", x.description, l.read_only, x.version,
                  x.updated_at
           FROM agent_sections l JOIN sections x ON x.id = l.section_id
           WHERE l.agent_id = %s ORDER BY l.place""",
        agent_id,
    )
    tools = await _all(
        tx,
        """SELECT g.name, g.attached, g.approval, g.first, g.terminal, g.required, g.max_calls,
                  d.kind, d.description, d.parameters, d.timeout, d.url, d.retries, m.name AS mcp_server
           FROM agent_tools g LEFT JOIN tools d ON d.id = g.tool_id
                LEFT JOIN mcp_servers m ON m.id = d.server_id
           WHERE g.agent_id = %s ORDER BY g.created_at, g.name""",
        agent_id,
    )
    return Whole(found[0], state, [each["name"] for each in attached], sections, tools)


async def read_page(
    tx: Transaction, name: str, values: Mapping[str, Any], *, vectors_table: str | None = None
) -> Rows:
    """A page of a list; passages with their vectors where a table is named."""
    query: sql.SQL | sql.Composed = sql.SQL(PAGES[name].query)
    if vectors_table is not None:
        query = sql.SQL(
            """SELECT p.*, v.embedding AS vector FROM ({passages}) p
               LEFT JOIN {table} v ON v.collection_id = %(collection_id)s AND v.passage_id = p.id
               ORDER BY p.id"""
        ).format(passages=query, table=sql.Identifier(vectors_table))
    return await (await tx.execute(query, values)).fetchall()


@contextmanager
def refusals() -> Iterator[None]:
    """What the database can't take of a file is the file's fault."""
    try:
        yield
    except psycopg.errors.UniqueViolation as error:
        table = error.diag.table_name
        if table == "agents" and "name" in (error.diag.constraint_name or ""):
            raise Conflict(
                "There is an agent of this name already.",
                hint="Import it under another name: `?name=` in a request, `--name` on the command line.",
            ) from error
        if table == "agents":  # whose agent has the id makes no difference to the answer
            raise Conflict(
                "The agent can't keep the file's id.",
                hint="Leave keep_ids out, and it gets a new id.",
            ) from error
        raise AgentFileCorrupt(f"The file has two {table} with the same key.") from error
    except (psycopg.IntegrityError, psycopg.DataError) as error:
        raise AgentFileCorrupt(
            f"The database refuses what the file says: {error.diag.message_primary or error}."
        ) from error


async def insert_agent(tx: Transaction, tenant: str, values: Mapping[str, Any]) -> None:
    """Store an agent with an empty collection and the state of one that has done nothing."""
    await tx.execute(
        """INSERT INTO collections (id, tenant, name, own, description, metadata, language,
                                    embedding_model, dimension, vectors_table)
           VALUES (%(collection_id)s, %(tenant)s, %(name)s, true, %(collection_description)s,
                   %(collection_metadata)s, %(language)s, %(embedding_model)s, %(dimension)s,
                   vectors_table(%(embedding_model)s, %(dimension)s))""",
        _jsonb({**values, "tenant": tenant}, "collection_metadata"),
    )
    await tx.execute(
        """INSERT INTO agents (id, tenant, name, model, system_prompt, options, metadata,
                               collection_id, created_at, updated_at)
           VALUES (%(id)s, %(tenant)s, %(name)s, %(model)s, %(system_prompt)s, %(options)s,
                   %(metadata)s, %(collection_id)s, coalesce(%(created_at)s, now()),
                   coalesce(%(updated_at)s, now()))""",
        _jsonb({**values, "tenant": tenant}, "options", "metadata"),
    )
    await tx.execute(
        "INSERT INTO agent_state (agent_id, tenant) VALUES (%s, %s)", [values["id"], tenant]
    )


IN_BYTES = 0.75
"""A smaller scale may be one for counts in bytes, of a file from before memserver counted in tokens (migration 0021)."""


async def set_state(
    tx: Transaction, agent_id: UUID, state: Mapping[str, Any], messages: int
) -> None:
    """Say where the agent stands, at the end of all: it has so many messages."""
    scale = state["token_scale"]
    if scale is not None and scale < IN_BYTES:
        await tx.execute(
            """UPDATE messages SET tokens = greatest(1, ceil(tokens * %s::real))::integer
               WHERE agent_id = %s AND position >= %s""",
            [scale, agent_id, state["queue_start"]],
        )
        state = {**state, "token_scale": None, "token_scale_model": None}
    await tx.execute(
        """UPDATE agent_state SET done_turn = %(done_turn)s, next_turn = %(done_turn)s + 1,
               queue_start = %(queue_start)s, pressure_warned = %(pressure_warned)s,
               token_scale = %(token_scale)s, token_scale_model = %(token_scale_model)s,
               message_count = %(messages)s,
               stats_messages = least(%(stats_messages)s, %(messages)s),
               memory_edited_at = coalesce(%(memory_edited_at)s, now()),
               stats_edited_at = coalesce(%(stats_edited_at)s, now())
           WHERE agent_id = %(agent_id)s""",
        {**state, "messages": messages, "agent_id": agent_id},
    )


async def insert_section(
    tx: Transaction, tenant: str, agent_id: UUID, values: Mapping[str, Any]
) -> None:
    """Store a section of the agent's own, without its history."""
    await tx.execute(
        """INSERT INTO sections (id, tenant, content, character_limit, description, version, updated_at)
           VALUES (%(id)s, %(tenant)s, %(text)s, %(limit)s, %(description)s, %(version)s,
                   coalesce(%(updated_at)s, now()))""",
        {**values, "tenant": tenant},
    )
    await tx.execute(
        """INSERT INTO agent_sections (agent_id, name, tenant, section_id, place, read_only)
           VALUES (%(agent_id)s, %(name)s, %(tenant)s, %(id)s, %(place)s, %(read_only)s)""",
        {**values, "tenant": tenant, "agent_id": agent_id},
    )


INSERTS = {
    "edits": """INSERT INTO section_edits (section_id, version, tenant, content, actor, agent_id, position,
                                      restores, created_at)
           VALUES (%(section_id)s, %(version)s, %(tenant)s, %(text)s, %(actor)s, %(agent_id)s,
                   %(position)s, %(restores)s, %(created_at)s)""",
    "summaries": """INSERT INTO summaries (agent_id, until, tenant, text, tokens, evicted, method, failure,
                                  outdated, created_at)
           VALUES (%(agent_id)s, %(until)s, %(tenant)s, %(text)s, %(tokens)s, %(evicted)s, %(method)s,
                   %(failure)s, %(outdated)s, %(created_at)s)""",
    "turns": """INSERT INTO turns (agent_id, turn, tenant, kind, state, steps, attempts, stop_reason, error,
               prompt_tokens, completion_tokens, cached_tokens, idempotency_key, fingerprint, posted_by,
               created_at, started_at, finished_at)
           VALUES (%(agent_id)s, %(turn)s, %(tenant)s, %(kind)s, %(state)s, %(steps)s, %(attempts)s,
               %(stop_reason)s, %(error)b::jsonb, %(prompt_tokens)s, %(completion_tokens)s, %(cached_tokens)s,
               %(idempotency_key)s, %(fingerprint)s, 'import', %(created_at)s, %(started_at)s,
               %(finished_at)s)""",
    "calls": """INSERT INTO tool_calls (agent_id, position, tenant, call_id, name, arguments, state, result,
               waits_for, answer, epoch, created_at, finished_at)
           VALUES (%(agent_id)s, %(position)s, %(tenant)s, %(id)s, %(name)s, %(arguments)b::json, %(state)s,
               %(result)s, %(waits_for)s, %(answer)b::jsonb, 0, %(created_at)s, %(finished_at)s)""",
}
"""Of each list, as a file's records have it; what is JSON there is text."""


async def insert_rows(
    tx: Transaction, name: str, rows: Sequence[Mapping[str, Any]], **shared: object
) -> None:
    """Store rows of a list, with values that they share."""
    if rows:
        async with tx.cursor() as cursor:
            await cursor.executemany(INSERTS[name].encode(), [{**shared, **row} for row in rows])


async def find_lost_message(tx: Transaction, agent_id: UUID) -> int | None:
    """The position of a message that is in no turn, if there is one."""
    found = await _all(
        tx,
        f"""SELECT m.position FROM messages m
            WHERE m.agent_id = %s AND NOT EXISTS (
                SELECT FROM turns t WHERE t.agent_id = %s AND t.turn = m.position / {PLACES_PER_TURN})
            LIMIT 1""",
        agent_id,
        agent_id,
    )
    return found[0]["position"] if found else None


async def insert_messages(
    tx: Transaction, tenant: str, agent_id: UUID, rows: Sequence[Mapping[str, Any]]
) -> None:
    """Store messages, many at a time, each with its call if it made one; JSON is text."""
    names = (
        *("position", "role", "text", "thought", "tokens", "created_at", "fields", "chat"),
        *("chat_note", "pictures", "expires_at"),
    )
    await tx.execute(
        """INSERT INTO messages (agent_id, position, tenant, role, content, thought, tokens, created_at,
                                 fields, chat, chat_note, pictures, expires_at)
           SELECT %s, m.position, %s, m.role, m.content, m.thought, m.tokens, m.at, m.fields::jsonb, m.chat,
                  m.chat_note, m.pictures::jsonb, m.expires_at
           FROM unnest(%s::bigint[], %s::text[], %b::text[], %b::text[], %s::integer[],
                       %s::timestamptz[], %b::text[], %b::text[], %b::text[], %b::text[],
                       %s::timestamptz[])
                AS m (position, role, content, thought, tokens, at, fields, chat, chat_note, pictures, expires_at)""",
        [agent_id, tenant, *([row[name] for row in rows] for name in names)],
    )
    calls = [
        {**row["call"], "position": row["position"]} for row in rows if row["call"] is not None
    ]
    await insert_rows(tx, "calls", calls, tenant=tenant, agent_id=agent_id)


async def attach_collections(
    tx: Transaction, tenant: str, agent_id: UUID, names: Sequence[str]
) -> list[str]:
    """Let the agent search the tenant's shared collections of these names; which there are."""
    cursor = await tx.execute(
        """WITH found AS (
               SELECT id, name FROM collections WHERE NOT own AND name = ANY (%(names)s)
           ), attached AS (
               INSERT INTO agent_collections (agent_id, collection_id, tenant)
               SELECT %(agent_id)s, id, %(tenant)s FROM found
           )
           SELECT name FROM found""",
        {"names": list(names), "agent_id": agent_id, "tenant": tenant},
    )
    return [row["name"] for row in await cursor.fetchall()]


async def _all(tx: Transaction, query: str, *parameters: object) -> Rows:
    return await (await tx.execute(query.encode(), parameters)).fetchall()


def _jsonb(values: Mapping[str, Any], *names: str) -> JsonObject:
    changed = {name: Jsonb(values[name]) for name in names if values[name] is not None}
    return {**values, **changed}
