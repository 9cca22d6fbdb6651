"""Tools, which of them agents have, and MCP servers."""

from dataclasses import replace
from typing import Unpack
from uuid import UUID

from memserver.client.methods import Resource, TransportT, items, method
from memserver.client.models import AgentTool, McpServer, Page, Tool, ToolTrial
from memserver.client.requests import (
    Id,
    JsonObject,
    Paged,
    Request,
    delete,
    get,
    given,
    patch,
    post,
    put,
)

_TOOL = "/tools/{name}"
_OF_AGENT = "/agents/{agent}/tools"
_SERVER = "/mcp-servers/{server_id}"


class Tools(Resource[TransportT]):
    """Tools, and which of them an agent has."""

    @method
    def create_webhook(
        self,
        name: str,
        description: str,
        url: str,
        *,
        parameters: JsonObject | None = None,
        secret: str | None = None,
        timeout: float | None = None,
        retries: int | None = None,
    ) -> Request[Tool]:
        """Register a tool that is called by a signed HTTP POST. Agents then attach it.

        Args:
            name: by which the model calls it.
            description: what the model reads of it.
            url: where calls are posted.
            parameters: JSON schema of its arguments, of type object; left out: none.
            secret: signs each call; made up when left out. It is in this answer only.
            timeout: seconds of a call, retries included.
            retries: after no connection, a 5xx, 408 or 429.
        """
        body = given(
            kind="webhook",
            name=name,
            description=description,
            url=url,
            parameters=parameters,
            secret=secret,
            timeout=timeout,
            retries=retries,
        )
        return post("/tools", Tool, body)

    @method
    def create_client_tool(
        self, name: str, description: str, *, parameters: JsonObject | None = None
    ) -> Request[Tool]:
        """Register a tool that you run: the turn waits until its result is given. Agents then attach it."""
        body = given(kind="client", name=name, description=description, parameters=parameters)
        return post("/tools", Tool, body)

    @method
    def list(self, **page: Unpack[Paged[str]]) -> Request[Page[Tool, str]]:
        """List the tools that agents can have, by name: those of the server, and those registered."""
        return get("/tools", Page[Tool, str], page)

    all = items(list.build)

    @method
    def get(self, name: str) -> Request[Tool]:
        """Get one tool."""
        return get(_TOOL, Tool, name=name)

    @method
    def update(
        self,
        name: str,
        *,
        description: str | None = None,
        parameters: JsonObject | None = None,
        url: str | None = None,
        secret: str | None = None,
        timeout: float | None = None,
        retries: int | None = None,
    ) -> Request[Tool]:
        """Change a registered tool; what is left out stays. It counts from an agent's next step on."""
        body = given(
            description=description,
            parameters=parameters,
            url=url,
            secret=secret,
            timeout=timeout,
            retries=retries,
        )
        return patch(_TOOL, Tool, body, name=name)

    @method
    def try_out(
        self, name: str, arguments: JsonObject | None = None, *, agent: Id | None = None
    ) -> Request[ToolTrial]:
        """Call a Python function, a webhook or a tool of an MCP server once, outside of any turn.

        It runs for real, in the limits of an agent's call; a call that fails is an answer, too.

        Args:
            name: of the tool.
            arguments: as a model would write them.
            agent: whose memory a Python function has, and whose id a webhook is sent.
        """
        request = post(f"{_TOOL}/try", ToolTrial, {"arguments": arguments or {}}, name=name)
        return replace(request, query={"agent": agent})

    @method
    def delete(self, name: str) -> Request[None]:
        """Delete a registered tool; agents that had it have it no more."""
        return delete(_TOOL, name=name)

    @method
    def of_agent(self, agent: Id, **page: Unpack[Paged[str]]) -> Request[Page[AgentTool, str]]:
        """List what the agent can call, in the order in which the model sees it, with its rules."""
        return get(_OF_AGENT, Page[AgentTool, str], page, agent=agent)

    all_of_agent = items(of_agent.build)

    @method
    def attach(
        self,
        agent: Id,
        name: str,
        *,
        approval: bool = False,
        first: bool = False,
        terminal: bool = False,
        required: bool = False,
        max_calls: int | None = None,
    ) -> Request[AgentTool]:
        """Let the agent call a tool by these rules; they replace those that it had.

        Args:
            agent: which gets it.
            name: of the tool.
            approval: a person has to approve each call before it runs.
            first: the turn's first call is this one, or another with this rule.
            terminal: the turn ends when it has succeeded.
            required: the turn doesn't end before it has succeeded.
            max_calls: in one turn, at most.
        """
        body = given(
            approval=approval,
            first=first,
            terminal=terminal,
            required=required,
            max_calls=max_calls,
        )
        return put(f"{_OF_AGENT}/{{name}}", AgentTool, body, agent=agent, name=name)

    @method
    def detach(self, agent: Id, name: str) -> Request[None]:
        """Take a tool from the agent."""
        return delete(f"{_OF_AGENT}/{{name}}", agent=agent, name=name)


class McpServers(Resource[TransportT]):
    """MCP servers, whose tools agents can attach."""

    @method
    def create(
        self,
        name: str,
        url: str,
        *,
        headers: JsonObject | None = None,
        timeout: float | None = None,
    ) -> Request[McpServer]:
        """Register an MCP server over streamable HTTP; it is asked for its tools, which agents then attach.

        Args:
            name: its tools are named NAME__TOOL.
            url: of the server.
            headers: sent with every request, such as Authorization; never shown again.
            timeout: seconds of a call; left out: the server's.
        """
        body = given(name=name, url=url, headers=headers, timeout=timeout)
        return post("/mcp-servers", McpServer, body)

    @method
    def list(self, **page: Unpack[Paged[Id]]) -> Request[Page[McpServer, UUID]]:
        """List the registered MCP servers."""
        return get("/mcp-servers", Page[McpServer, UUID], page)

    all = items(list.build)

    @method
    def get(self, server: Id) -> Request[McpServer]:
        """Get one registered MCP server."""
        return get(_SERVER, McpServer, server_id=server)

    @method
    def refresh(self, server: Id) -> Request[McpServer]:
        """Ask an MCP server for its tools again; agents lose those that are gone."""
        return post(f"{_SERVER}/refresh", McpServer, server_id=server)

    @method
    def delete(self, server: Id) -> Request[None]:
        """Delete an MCP server with its tools; agents that had them have them no more."""
        return delete(_SERVER, server_id=server)
