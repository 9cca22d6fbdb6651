"""The requests for tools and MCP servers, each once, for both clients."""

from uuid import UUID

from memserver.client.models import AgentTool, McpServer, Page, Tool
from memserver.client.requests import (
    Id,
    JsonObject,
    Order,
    PageRequest,
    Request,
    given,
    new_key,
    nothing,
)

# --- tools


def create_webhook(
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
        description: what the model is told of it.
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
    return Request("POST", "/tools", Tool.model_validate, body=body, key=new_key())


def create_client_tool(
    name: str, description: str, *, parameters: JsonObject | None = None
) -> Request[Tool]:
    """Register a tool that you run: the turn waits until its result is given. Agents then attach it."""
    body = given(kind="client", name=name, description=description, parameters=parameters)
    return Request("POST", "/tools", Tool.model_validate, body=body, key=new_key())


def list_tools(
    *, after: str | None = None, limit: int = 50, order: Order | None = None
) -> PageRequest[Tool, str]:
    """List the tools that agents can have, by name: those of the server, and those registered."""
    query = {"after": after, "limit": limit, "order": order}
    return PageRequest("GET", "/tools", Page[Tool, str].model_validate, query=query)


def get_tool(name: str) -> Request[Tool]:
    """Get one tool."""
    return Request("GET", "/tools/{name}", Tool.model_validate, {"name": name})


def update_tool(
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
    return Request("PATCH", "/tools/{name}", Tool.model_validate, {"name": name}, body=body)


def delete_tool(name: str) -> Request[None]:
    """Delete a registered tool; agents that had it have it no more."""
    return Request("DELETE", "/tools/{name}", nothing, {"name": name})


# --- an agent's


def agent_tools(
    agent: Id, *, after: str | None = None, limit: int = 50, order: Order | None = None
) -> PageRequest[AgentTool, str]:
    """List what the agent can call, in the order in which the model sees it, with its rules."""
    return PageRequest(
        "GET",
        "/agents/{agent}/tools",
        Page[AgentTool, str].model_validate,
        {"agent": agent},
        {"after": after, "limit": limit, "order": order},
    )


def attach_tool(
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
        agent: who gets it.
        name: of the tool.
        approval: a person has to approve each call before it runs.
        first: the turn's first call is this one, or another with this rule.
        terminal: the turn ends when it has succeeded.
        required: the turn doesn't end before it has succeeded.
        max_calls: in one turn, at most.
    """
    body = given(
        approval=approval, first=first, terminal=terminal, required=required, max_calls=max_calls
    )
    ids = {"agent": agent, "name": name}
    return Request("PUT", "/agents/{agent}/tools/{name}", AgentTool.model_validate, ids, body=body)


def detach_tool(agent: Id, name: str) -> Request[None]:
    """Take a tool from the agent."""
    ids = {"agent": agent, "name": name}
    return Request("DELETE", "/agents/{agent}/tools/{name}", nothing, ids)


# --- MCP servers


def create_mcp_server(
    name: str, url: str, *, headers: JsonObject | None = None, timeout: float | None = None
) -> Request[McpServer]:
    """Register an MCP server over streamable HTTP; it is asked for its tools, which agents then attach.

    Args:
        name: its tools are named NAME__TOOL.
        url: of the server.
        headers: sent with every request, such as Authorization; never shown again.
        timeout: seconds of a call; left out: the server's.
    """
    body = given(name=name, url=url, headers=headers, timeout=timeout)
    return Request("POST", "/mcp-servers", McpServer.model_validate, body=body, key=new_key())


def list_mcp_servers(
    *, after: Id | None = None, limit: int = 50, order: Order | None = None
) -> PageRequest[McpServer, UUID]:
    """List the registered MCP servers."""
    query = {"after": after, "limit": limit, "order": order}
    return PageRequest("GET", "/mcp-servers", Page[McpServer, UUID].model_validate, query=query)


def get_mcp_server(server: Id) -> Request[McpServer]:
    """Get one registered MCP server."""
    ids = {"server_id": server}
    return Request("GET", "/mcp-servers/{server_id}", McpServer.model_validate, ids)


def refresh_mcp_server(server: Id) -> Request[McpServer]:
    """Ask an MCP server for its tools again; agents lose those that are gone."""
    ids = {"server_id": server}
    return Request(
        "POST", "/mcp-servers/{server_id}/refresh", McpServer.model_validate, ids, key=new_key()
    )


def delete_mcp_server(server: Id) -> Request[None]:
    """Delete an MCP server with its tools; agents that had them have them no more."""
    return Request("DELETE", "/mcp-servers/{server_id}", nothing, {"server_id": server})
