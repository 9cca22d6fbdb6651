"""The MCP servers whose tools agents have: those of the settings, and those that tenants register."""

import asyncio
import logging
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from hashlib import sha256
from time import thread_time
from typing import TYPE_CHECKING, Any
from uuid import UUID

from memserver.errors import InvalidInput, McpServerError, NotFound, ToolError
from memserver.llm.bounded_schema import without_unusable_patterns
from memserver.messages import JsonObject, ToolSpec
from memserver.storage import tools
from memserver.storage.database import Database
from memserver.storage.tools import McpServerRow, NewDefinition, NewMcpServer
from memserver.text import clean, clean_json
from memserver.tools.outbound.addresses import Networks
from memserver.tools.outbound.mcp import (
    CONNECT_SECONDS,
    BadAnswer,
    HttpServer,
    ListedTool,
    NotDelivered,
    StdioServer,
)
from memserver.tools.parameters import check_parameters
from memserver.tools.signature import LONGEST_TOOL_NAME
from memserver.tools.tool import RunnableTool, ToolContext, call_schema

if TYPE_CHECKING:
    from memserver.tools.outbound.mcp_client import SdkConnection

logger = logging.getLogger(__name__)

SEPARATOR = "__"
"""Between a server's name and its tool's, in the name that the model sees."""
MCP_SERVER_NAME = r"^[A-Za-z][A-Za-z0-9-]{0,30}$"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_STEADY_SECONDS = 60.0
_IDLE_SECONDS = 300.0
_MOST_CONNECTIONS = 64
_MOST_DESCRIPTION = 4000
_CHECK_SECONDS = 5.0
"""CPU that the schemas of one server's tools may take."""
_OTHER = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True)
class ListedTools:
    """What a server lists, as tools of ours; `refused`: why some can't be."""

    tools: tuple[NewDefinition, ...]
    refused: Mapping[str, str]


class McpConnections:
    def __init__(
        self,
        database: Database,
        configured: Mapping[str, StdioServer | HttpServer],
        networks: Networks = (),
    ) -> None:
        self._database = database
        self._kept = {name: _Kept(name, server) for name, server in configured.items()}
        self._networks = networks
        self._connections: dict[tuple[UUID, datetime], _Shared] = {}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the configured ones connected while the block runs."""
        tasks = [asyncio.create_task(kept.keep(), name="mcp") for kept in self._kept.values()]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            shared = [each.close() for each in self._connections.values()]
            await asyncio.gather(*shared, *(kept.close() for kept in self._kept.values()))

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._kept)

    @property
    def configured(self) -> Mapping[str, RunnableTool]:
        """The tools of those of the settings that could be listed until now."""
        return {name: tool for kept in self._kept.values() for name, tool in kept.tools.items()}

    async def wait_until_listed(self, names: Sequence[str]) -> None:
        """Wait, not long, until the servers that these tools are of have been listed."""
        servers = {name.partition(SEPARATOR)[0] for name in names}
        waiting = [
            asyncio.create_task(kept.listed.wait())
            for name, kept in self._kept.items()
            if name in servers and not kept.listed.is_set()
        ]
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=CONNECT_SECONDS)
            for task in late:
                task.cancel()

    async def call(
        self, tenant: str, server_id: UUID, name: str, arguments: Mapping[str, Any]
    ) -> object:
        """Call a tool of a tenant's server. Raises ToolError."""
        async with self._database.tenant(tenant) as tx:
            try:
                server = await tools.get_server(tx, server_id)
            except NotFound as error:
                raise ToolError("Its MCP server is no longer there.") from error
        await self._make_room()
        shared = self._shared(server)
        return await shared.call(name, arguments)

    async def list_tools(self, server: McpServerRow | NewMcpServer) -> ListedTools:
        """Ask a tenant's server for its tools. Raises InvalidInput: it can't be asked."""
        try:
            connection = await connect(self._of(server))
            try:
                found = await connection.tools()
            finally:
                await connection.close()
        except BadAnswer as error:
            raise McpServerError(error.message, hint="Ask its operator.") from error
        except ToolError as error:
            raise InvalidInput(error.message, hint="Is its URL that of an MCP endpoint?") from error
        return await asyncio.to_thread(listing, server.name, found, server.timeout)

    def _of(self, server: McpServerRow | NewMcpServer) -> HttpServer:
        return HttpServer(server.url, server.headers, self._networks)

    def _shared(self, server: McpServerRow) -> "_Shared":
        key = (server.id, server.updated_at)
        if key not in self._connections:
            self._connections[key] = _Shared(self._of(server))
        return self._connections[key]

    async def _make_room(self) -> None:
        """Close what was not used for long, and the least used where there are too many."""
        idle = sorted(self._connections.items(), key=lambda item: item[1].used_at)
        now = time.monotonic()
        for place, (key, shared) in enumerate(idle):
            too_many = len(idle) - place >= _MOST_CONNECTIONS
            if not shared.busy and (too_many or now - shared.used_at > _IDLE_SECONDS):
                del self._connections[key]
                await shared.close()


class _Shared:
    def __init__(self, server: StdioServer | HttpServer) -> None:
        self._server = server
        self._connection: SdkConnection | None = None
        self._opening = asyncio.Lock()
        self.busy = 0
        self.used_at = time.monotonic()

    async def call(self, name: str, arguments: Mapping[str, Any]) -> object:
        """Call a tool; over a new connection, if the old one is dead. Raises ToolError."""
        self.busy += 1
        try:
            try:
                return await (await self.live()).call(name, arguments)
            except NotDelivered:
                return await (await self.live()).call(name, arguments)
        finally:
            self.busy -= 1
            self.used_at = time.monotonic()

    async def live(self) -> "SdkConnection":
        """The connection, opened now if there is none that lives. Raises ToolError."""
        async with self._opening:
            if self._connection is None or self._connection.dead.is_set():
                await self.close()
                self._connection = await connect(self._server)
            return self._connection

    async def close(self) -> None:
        """Close it; the next call opens another one."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close()


class _Kept:
    """A server of the settings: connected from the start, and again whenever it dies."""

    def __init__(self, name: str, server: StdioServer | HttpServer) -> None:
        self.tools: dict[str, RunnableTool] = {}
        self.listed = asyncio.Event()
        self._name = name
        command = server.command if isinstance(server, StdioServer) else ""
        self._shown = f"{name} (command {command})" if command else name
        self._shared = _Shared(server)

    async def keep(self) -> None:
        """Connect, list, wait until it dies; and again."""
        pause = _FIRST_PAUSE
        while True:
            try:
                connection = await self._shared.live()
                found = await connection.tools()
                self._take(await asyncio.to_thread(listing, self._name, found, None))
            except ToolError as error:
                logger.warning(
                    "MCP server %s: %s Trying again in %.1f s.", self._shown, error.message, pause
                )
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            since = time.monotonic()
            await connection.dead.wait()
            logger.warning("MCP server %s: the connection ended; opening another.", self._shown)
            if time.monotonic() - since > _STEADY_SECONDS:
                pause = _FIRST_PAUSE
            # One that dies as soon as it lives must not be started without end.
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def close(self) -> None:
        await self._shared.close()

    def _take(self, listed: ListedTools) -> None:
        for name, reason in listed.refused.items():
            logger.warning("MCP server %s: its tool %s is left out: %s", self._name, name, reason)
        self.tools = {new.name: self._tool(new) for new in listed.tools}
        self.listed.set()

    def _tool(self, new: NewDefinition) -> RunnableTool:
        spec = ToolSpec(new.name, new.description, call_schema(new.parameters))
        assert new.remote_name is not None
        return RunnableTool(spec, partial(self._call, new.remote_name), kind="mcp", attached=False)

    async def _call(
        self,
        remote_name: str,
        context: ToolContext,  # noqa: ARG002 - every tool takes it
        /,
        **arguments: Any,  # noqa: ANN401 - JSON
    ) -> object:
        return await self._shared.call(remote_name, arguments)


async def connect(server: StdioServer | HttpServer) -> "SdkConnection":
    """Connect to a server. Raises ToolError: it can't be reached or speaks no MCP."""
    return await (await asyncio.to_thread(_make_connection, server)).open()


def _make_connection(server: StdioServer | HttpServer) -> "SdkConnection":
    """Loads the SDK, which takes a second: only those who have MCP servers wait for it, in a thread."""
    from memserver.tools.outbound.mcp_client import SdkConnection  # noqa: PLC0415

    return SdkConnection(server)


def tool_names(server: str, remote: Sequence[str]) -> dict[str, str]:
    """The names that the model sees, by the server's own, in whatever order it lists them.

    Where two would be one, a name that needs no change keeps its own; the other, and what is too long, ends in a digest.
    """
    plain = {name: f"{server}{SEPARATOR}{_OTHER.sub('_', name)}" for name in remote}
    count = Counter(plain.values())
    return {
        name: made
        if len(made) <= LONGEST_TOOL_NAME and (count[made] == 1 or made.endswith(SEPARATOR + name))
        else f"{made[: LONGEST_TOOL_NAME - 7]}_{sha256(name.encode()).hexdigest()[:6]}"
        for name, made in plain.items()
    }


def listing(server: str, found: Sequence[ListedTool], seconds: float | None) -> ListedTools:
    """What a server lists, as tools of ours under its name. For a thread: schemas take time to check."""
    made: dict[str, NewDefinition] = {}
    refused: dict[str, str] = {}
    until = thread_time() + _CHECK_SECONDS
    names = tool_names(server, [each.name for each in found])
    for each in found:
        name = names[each.name]
        try:
            if name in made:
                raise InvalidInput("The server lists it twice.")
            if thread_time() > until:
                raise InvalidInput("The schemas of the server's tools take too long to check.")
            parameters: JsonObject = without_unusable_patterns(clean_json(each.parameters))
            made[name] = NewDefinition(
                name=name,
                kind="mcp",
                description=clean(each.description)[:_MOST_DESCRIPTION] or each.name,
                parameters=check_parameters(parameters),
                timeout=seconds,
                remote_name=each.name,
            )
        except InvalidInput as error:
            refused[each.name[:100]] = error.message
    return ListedTools(tuple(made.values()), refused)
