"""Tools that a tenant has registered, and which tools an agent has, by which rules."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from psycopg.types.json import Json

from memserver.errors import Conflict, NotFound
from memserver.messages import JsonObject
from memserver.storage.database import Transaction
from memserver.storage.ids import new_id
from memserver.storage.missing import no_agent, refuse_taken_name
from memserver.storage.rows import PageQuery, Table, columns_of, fetch_all, fetch_value, paginate

DefinitionKind = Literal["webhook", "client", "mcp"]


@dataclass(frozen=True, slots=True)
class NewDefinition:
    """What a tool is registered from; `parameters` is the JSON schema of its own arguments.

    `url`, `secret` and `retries` are a webhook's; `server_id` and `remote_name` an MCP server's tool's.
    `timeout` is in seconds; None: the server's.
    """

    name: str
    kind: DefinitionKind
    description: str
    parameters: JsonObject
    timeout: float | None = None
    url: str | None = None
    secret: str | None = field(default=None, repr=False)
    retries: int = 0
    server_id: UUID | None = None
    remote_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition(NewDefinition):
    id: UUID
    tenant: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Grant:
    """What an agent has said of a tool: whether it has it, and by which rules it calls it.

    `definition` is that of a tenant's own tool; None: the tool is the server's.
    """

    name: str
    attached: bool
    approval: bool = False
    first: bool = False
    terminal: bool = False
    required: bool = False
    max_calls: int | None = None
    definition: Definition | None = None

    @property
    def has_rules(self) -> bool:
        """Whether what was called matters for what may be called, or how."""
        return (
            self.approval
            or self.first
            or self.terminal
            or self.required
            or self.max_calls is not None
        )


@dataclass(frozen=True, slots=True)
class NewMcpServer:
    name: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServerRow(NewMcpServer):
    """An MCP server that a tenant has registered; `headers` may hold secrets."""

    id: UUID
    tenant: str
    listed_at: datetime | None
    created_at: datetime
    updated_at: datetime


_FIELDS = columns_of(Definition)
_RULES = "name, attached, approval, first, terminal, required, max_calls"
GRANTS_COLUMN = """
    (SELECT json_agg(json_build_object(
                'name', g.name, 'attached', g.attached, 'approval', g.approval, 'first', g.first,
                'terminal', g.terminal, 'required', g.required, 'max_calls', g.max_calls,
                'definition', CASE WHEN d.id IS NOT NULL THEN row_to_json(d) END)
            ORDER BY g.created_at, g.name)
     FROM agent_tools g LEFT JOIN tools d ON d.id = g.tool_id
     WHERE g.agent_id = s.agent_id) AS grants
"""
"""Reads an agent's grants beside its state `s`, so that they cost no statement of their own."""


def no_tool(name: str) -> NotFound:
    return NotFound(f"There is no tool {name!r}.", hint="GET /v1/tools lists them.")


def no_server(server_id: UUID) -> NotFound:
    return NotFound(f"There is no MCP server {server_id}.", hint="GET /v1/mcp-servers lists yours.")


_TOOLS = Table(Definition, "tools", _FIELDS, no_tool, key="name")
get, update, delete = _TOOLS.get, _TOOLS.update, _TOOLS.delete
_SERVERS = Table(McpServerRow, "mcp_servers", columns_of(McpServerRow), no_server)
get_server, list_servers, delete_server = _SERVERS.get, _SERVERS.list_page, _SERVERS.delete


async def create(tx: Transaction, tenant: str, new: NewDefinition) -> Definition:
    with refuse_taken_name("a tool", new.name):
        return await _TOOLS.insert(tx, tenant, asdict(new))


async def list_page(tx: Transaction, page: PageQuery) -> list[Definition]:
    """A page of a tenant's tools, by name as Python orders it."""
    query = f"SELECT {_FIELDS} FROM tools WHERE true"
    return await paginate(tx, Definition, page, query, {}, by='name COLLATE "C"')


async def grant(tx: Transaction, tenant: str, agent_id: UUID, given: Grant) -> None:
    """Store what an agent has said of a tool, instead of what it had said before."""
    await tx.execute(
        f"""INSERT INTO agent_tools (agent_id, tenant, tool_id, {_RULES})
            VALUES (%(agent_id)s, %(tenant)s, %(tool_id)s, %(name)s, %(attached)s, %(approval)s,
                %(first)s, %(terminal)s, %(required)s, %(max_calls)s)
            ON CONFLICT (agent_id, name) DO UPDATE SET tool_id = excluded.tool_id,
                attached = excluded.attached, approval = excluded.approval,
                first = excluded.first, terminal = excluded.terminal,
                required = excluded.required, max_calls = excluded.max_calls""",
        {
            **asdict(given),
            "agent_id": agent_id,
            "tenant": tenant,
            "tool_id": given.definition.id if given.definition else None,
        },
    )


async def forget(tx: Transaction, agent_id: UUID, name: str) -> bool:
    """Forget what an agent has said of a tool; returns whether it had said anything."""
    cursor = await tx.execute(
        "DELETE FROM agent_tools WHERE agent_id = %s AND name = %s", [agent_id, name]
    )
    return cursor.rowcount > 0


async def lock_grants(tx: Transaction, agent_id: UUID) -> tuple[Grant, ...]:
    """What an agent has said of its tools; until the transaction ends nobody else changes it."""
    query = "SELECT id FROM agents WHERE id = %s FOR NO KEY UPDATE"
    if await fetch_value(tx, query, [agent_id]) is None:
        raise no_agent(agent_id)
    return await grants_of(tx, agent_id)


async def grants_of(tx: Transaction, agent_id: UUID) -> tuple[Grant, ...]:
    query = f"SELECT {GRANTS_COLUMN} FROM agent_state s WHERE s.agent_id = %s"
    return grants_from_row({"grants": await fetch_value(tx, query, [agent_id])})


def grants_from_row(row: Mapping[str, Any]) -> tuple[Grant, ...]:
    return tuple(
        Grant(**{**given, "definition": _from_json(given["definition"])})
        for given in row["grants"] or ()
    )


async def create_server(tx: Transaction, tenant: str, new: NewMcpServer) -> McpServerRow:
    with refuse_taken_name("an MCP server", new.name):
        return await _SERVERS.insert(tx, tenant, asdict(new))


async def tools_of(tx: Transaction, server_id: UUID) -> list[Definition]:
    """The tools of an MCP server as it listed them last, by name."""
    query = f"SELECT {_FIELDS} FROM tools WHERE server_id = %s ORDER BY name"
    return await fetch_all(tx, Definition, query, [server_id])


async def relist(
    tx: Transaction, tenant: str, server_id: UUID, listed: Sequence[NewDefinition]
) -> list[Definition]:
    """Store what an MCP server lists now: new tools, changed ones; those that are gone go.

    Raises:
        Conflict: the tenant has another tool of one of these names.
    """
    cursor = await tx.execute(
        "UPDATE mcp_servers SET listed_at = now(), updated_at = now() WHERE id = %s", [server_id]
    )
    if cursor.rowcount == 0:
        raise no_server(server_id)
    await tx.execute(
        "DELETE FROM tools WHERE server_id = %s AND name <> ALL (%s)",
        [server_id, [new.name for new in listed]],
    )
    for new in listed:
        stored = await tx.execute(
            """INSERT INTO tools (id, tenant, name, kind, description, parameters, timeout,
                    server_id, remote_name)
               VALUES (%(id)s, %(tenant)s, %(name)s, %(kind)s, %(description)s, %(parameters)s,
                    %(timeout)s, %(server_id)s, %(remote_name)s)
               ON CONFLICT (tenant, name) DO UPDATE SET description = excluded.description,
                    parameters = excluded.parameters, timeout = excluded.timeout,
                    updated_at = now()
               WHERE tools.server_id = excluded.server_id""",
            {
                **asdict(new),
                "id": new_id(),
                "tenant": tenant,
                "server_id": server_id,
                "parameters": Json(new.parameters),
            },
        )
        if stored.rowcount == 0:
            raise Conflict(
                f"There is another tool named {new.name!r} already.",
                hint="Delete it, or give the MCP server another name.",
            )
    return await tools_of(tx, server_id)


def _from_json(row: Mapping[str, Any] | None) -> Definition | None:
    if row is None:
        return None
    ids = {key: UUID(row[key]) if row[key] else None for key in ("id", "server_id")}
    times = {key: datetime.fromisoformat(row[key]) for key in ("created_at", "updated_at")}
    return Definition(**{**row, **ids, **times})
