"""memserver as an MCP server, so that another agent can use the memories of ours.

Owns the tools that it offers and how an agent is named in them. Leaves the memories to
`memserver.tools.agent_memory`, the protocol to the SDK, and who asks to its caller.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC
from functools import wraps
from typing import Annotated, Any
from uuid import UUID

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import BaseModel, Field

import memserver
from memserver.agent.dependencies import ModelSource
from memserver.api.middleware.access import Caller
from memserver.errors import Forbidden, InvalidInput, MemserverError, ModelError, NotFound
from memserver.llm.model_facts import DEFAULT_WINDOW
from memserver.llm.tokens import Estimated
from memserver.memory.archival import ArchivalStorage
from memserver.memory.recall import RecallStorage
from memserver.memory.results import ResultReader
from memserver.storage import agents
from memserver.storage.agents import AgentRow
from memserver.storage.database import Database
from memserver.storage.rows import PageQuery
from memserver.storage.snapshots import read_snapshot
from memserver.text import clean
from memserver.tools.agent_memory import AgentMemory
from memserver.wire.agents import AgentOptions
from memserver.wiring.services import Services

INSTRUCTIONS = """The memories of memserver's agents. Each agent has a working context (short named sections
that it always sees), recall storage (every message of its conversations) and archival storage (passages,
searched by meaning and by words)."""
MOST_AGENTS = 100

AgentName = Annotated[
    str | None,
    Field(description="Name or id of the agent; left out: the one that this server is for."),
]
PageNumber = Annotated[int, Field(description="Page of the results, from 1.", ge=1)]


ToolCall = Context[Any, Any]
"""A call as the SDK describes it; no argument of the tools, that an agent would see."""


@dataclass(frozen=True, slots=True)
class McpCaller:
    """Who calls a tool: whose agents it may use, and whether it may change them."""

    tenant: str
    may_write: bool = True


Whose = Callable[[ToolCall], McpCaller]
"""Finds out who calls, by the call's context."""


def always(tenant: str) -> Whose:
    return lambda _: McpCaller(tenant)


class AgentInfo(BaseModel):
    """An agent, as it is named."""

    name: str
    id: UUID


class SectionInfo(BaseModel):
    """A section of a working context; `limit` is in characters."""

    name: str
    text: str
    limit: int
    description: str


@dataclass(frozen=True, slots=True)
class Memories:
    """The agents whose memories are offered.

    Attributes:
        whose: says of a call who makes it.
        only: name or id of the one agent that is offered; None: all of them.
        models: whose windows and tokens count; None: there are none here.
    """

    database: Database
    archival: ArchivalStorage
    recall: RecallStorage
    whose: Whose
    only: str | None = None
    models: ModelSource | None = None

    async def check(self, tenant: str) -> None:
        """Find out whether the one agent is there. Raises NotFound."""
        if self.only is not None:
            await self._agent(tenant, self.only)

    async def list_agents(self, context: ToolCall) -> list[AgentInfo]:
        """List the agents whose memories can be used."""
        tenant = self.whose(context).tenant
        async with self.database.tenant(tenant) as tx:
            if self.only is not None:
                found = [await self._agent(tenant, self.only)]
            else:
                found = await agents.list_page(tx, PageQuery(MOST_AGENTS))
        return [AgentInfo(name=agent.name, id=agent.id) for agent in found]

    async def working_context_read(
        self, context: ToolCall, agent: AgentName = None
    ) -> list[SectionInfo]:
        """Read an agent's working context: what it always sees."""
        sections = await (await self._memory(context, agent)).sections()
        return [
            SectionInfo(
                name=each.name, text=each.text, limit=each.limit, description=each.description
            )
            for each in sections
        ]

    async def working_context_append(
        self, context: ToolCall, section: str, content: str, agent: AgentName = None
    ) -> str:
        """Add a line to a section of an agent's working context; gives the section's new text."""
        memory = await self._memory(context, agent, write=True)
        return await memory.append(section, content)

    async def working_context_replace(
        self,
        context: ToolCall,
        section: str,
        old_content: str,
        new_content: str,
        agent: AgentName = None,
    ) -> str:
        """Replace a text in a section of an agent's working context; an empty new_content deletes it.

        old_content must match exactly. Gives the section's new text.
        """
        memory = await self._memory(context, agent, write=True)
        return await memory.replace(section, old_content, new_content)

    async def recall_memory_search(
        self, context: ToolCall, query: str, agent: AgentName = None, page: PageNumber = 1
    ) -> str:
        """Search an agent's earlier messages: first those with these very words, then by words and meaning."""
        memory, reader = await self._read(context, agent)
        size = reader.page(page).size
        found = await memory.search_recall(_words(query), page=page, size=size)
        return await found.describe(UTC, reader)

    async def archival_memory_search(
        self, context: ToolCall, query: str, agent: AgentName = None, page: PageNumber = 1
    ) -> str:
        """Search an agent's archival storage by meaning and by words."""
        memory, reader = await self._read(context, agent)
        size = reader.page(page).size
        found = await memory.search_archival(query, page=page, size=size)
        return await found.describe(UTC, reader)

    async def memory_read(
        self,
        context: ToolCall,
        label: Annotated[str, Field(description="As results show it: m12003, p17, p17@handbook.")],
        agent: AgentName = None,
        start: Annotated[int, Field(description="Character to begin with, from 1.", ge=1)] = 1,
    ) -> str:
        """Read one message or passage whole, by the label that results show."""
        memory, reader = await self._read(context, agent)
        return await (await memory.read(label)).describe(start, UTC, reader)

    async def archival_memory_insert(
        self,
        context: ToolCall,
        content: str,
        agent: AgentName = None,
        tags: Annotated[list[str] | None, Field(description="By which it can be found.")] = None,
    ) -> str:
        """Keep a note or document in an agent's archival storage; gives its id."""
        memory = await self._memory(context, agent, write=True)
        passage = await memory.insert_archival(content, tags=tags or ())
        return passage.id

    async def _memory(
        self, context: ToolCall, name: str | None, *, write: bool = False
    ) -> AgentMemory:
        caller = self.whose(context)
        if write and not caller.may_write:
            raise Forbidden("The API key has not the scope write.", scope="write")
        agent = await self._meant(caller.tenant, name)
        return AgentMemory(agent.id, caller.tenant, self.database, self.archival, self.recall)

    async def _read(self, context: ToolCall, name: str | None) -> tuple[AgentMemory, ResultReader]:
        tenant = self.whose(context).tenant
        agent = await self._meant(tenant, name)
        memory = AgentMemory(agent.id, tenant, self.database, self.archival, self.recall)
        async with self.database.tenant(tenant) as tx:
            found = await read_snapshot(tx, agent.id)
        scale = None if found is None else found[0].state.token_scale
        return memory, await self._reader(agent, scale)

    async def _reader(self, agent: AgentRow, scale: float | None) -> ResultReader:
        window, count = DEFAULT_WINDOW, Estimated().count
        if self.models is not None and not self.models.loading():
            with suppress(ModelError):  # memories can be read while the model is away
                model = self.models.get(agent.model)
                window = await model.context_window()
                count = model.count_tokens
        limit = AgentOptions.model_validate(agent.options).context_window
        return ResultReader(min(window, limit or window), count, scale or 1.0)

    async def _meant(self, tenant: str, name: str | None) -> AgentRow:
        agent = await self._agent(tenant, name or self.only)
        if name and self.only and agent.id != (await self._agent(tenant, self.only)).id:
            raise InvalidInput(f"This server is for the agent {self.only!r} only.")
        return agent

    async def _agent(self, tenant: str, name: str | None) -> AgentRow:
        if name is None:
            raise InvalidInput("Name the agent whose memory is meant; list_agents lists them.")
        async with self.database.tenant(tenant) as tx:
            try:
                return await agents.find(tx, clean(name))
            except NotFound as error:
                raise InvalidInput(f"There is no agent {name!r}.") from error


def make_server(memories: Memories) -> MCPServer[Any]:
    offered: list[Callable[..., Any]] = [
        memories.list_agents,
        memories.working_context_read,
        memories.working_context_append,
        memories.working_context_replace,
        memories.recall_memory_search,
        memories.archival_memory_search,
        memories.memory_read,
        memories.archival_memory_insert,
    ]
    return MCPServer(
        "memserver",
        version=memserver.__version__,
        instructions=INSTRUCTIONS,
        log_level="WARNING",
        tools=[_strict(function) for function in offered],
    )


def make_manager(services: Services, most_bytes: int) -> StreamableHTTPSessionManager:
    """What answers the requests; whose memories it uses, each request's key says."""
    deps = services.deps
    server = make_server(
        Memories(services.database, services.archival, deps.recall, _caller_of, models=deps.models)
    )
    server.streamable_http_app(
        json_response=True,
        stateless_http=True,
        # Host and Origin are looked at by `access`, which knows whether there are keys.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        max_request_body_size=most_bytes,
    )
    return server.session_manager


def _caller_of(call: ToolCall) -> McpCaller:
    request = call.request_context.request
    assert request is not None, "over HTTP there is one"
    caller: Caller = request.state.caller
    return McpCaller(caller.tenant, caller.may("write"))


def _strict(function: Callable[..., Awaitable[Any]]) -> Tool:
    """A tool that refuses arguments that it doesn't know, which would have no effect."""
    tool = Tool.from_function(_reporting_errors(function))
    arguments = tool.fn_metadata.arg_model
    arguments.model_config["extra"] = "forbid"
    arguments.model_rebuild(force=True)
    tool.parameters["additionalProperties"] = False
    return tool


def _reporting_errors(function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """An error of ours reaches the other agent as its message."""

    @wraps(function)
    async def report(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - those of the function
        try:
            return await function(*args, **kwargs)
        except MemserverError as error:
            raise ToolError(f"{error.message} {error.hint}".strip()) from error

    return report


def _words(query: str) -> str:
    if not query.strip():
        raise InvalidInput("The query is empty. Name a word or phrase.")
    return query
