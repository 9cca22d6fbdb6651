"""Tools: those that a tenant registers, and those that an agent has."""

import asyncio
from dataclasses import replace
from typing import Annotated
from uuid import UUID

from fastapi import Body

from memserver.agent import tool_trial
from memserver.api.dependencies import (
    AgentFilter,
    AgentId,
    ByName,
    PathText,
    ServicesDep,
    TenantDep,
)
from memserver.api.json_body import Router
from memserver.api.schemas.answers import agent_tool, registered_tool, server_tool
from memserver.api.schemas.tools import ClientToolIn, ToolPatch, ToolRulesIn, ToolTrialIn, WebhookIn
from memserver.errors import Conflict, InvalidInput, NotFound
from memserver.storage import agents, tools
from memserver.storage.database import Transaction
from memserver.storage.tools import Grant, NewDefinition
from memserver.tools.memory_tools import SEND_MESSAGE
from memserver.tools.outbound.addresses import check_url
from memserver.tools.outbound.signing import new_secret
from memserver.tools.parameters import check_parameters
from memserver.tools.registry import check_rules
from memserver.tools.tool import RunnableTool
from memserver.wire.agents import AgentOptions
from memserver.wire.base import Page
from memserver.wire.tools import AgentTool, Tool, ToolTrial
from memserver.wiring.services import Services

router = Router(tags=["tools"])

NewTool = Annotated[WebhookIn | ClientToolIn, Body(discriminator="kind")]


@router.post("/tools", status_code=201)
async def create_tool(new: NewTool, services: ServicesDep, tenant: TenantDep) -> Tool:
    """Register a tool: a webhook, or one that callers run themselves. Agents then attach it.

    A webhook's `secret` is in this answer only.
    """
    check_free(services, new.name)
    await asyncio.to_thread(check_parameters, new.parameters)
    secret = None
    if isinstance(new, WebhookIn):
        check_url(new.url, services.networks)
        secret = new.secret or new_secret()
    definition = NewDefinition(**new.model_dump(exclude={"secret"}), secret=secret)
    async with services.database.tenant(tenant) as tx:
        return registered_tool(await tools.create(tx, tenant, definition), secret=secret)


@router.get("/tools")
async def list_tools(services: ServicesDep, tenant: TenantDep, listing: ByName) -> Page[Tool, str]:
    """List the tools that agents can have, by name: those of the server, and those registered."""
    async with services.database.tenant(tenant) as tx:
        own = await tools.list_page(tx, listing.query)
    of_server = map(server_tool, services.deps.tools.server_tools())
    found = sorted(
        [*map(registered_tool, own), *(tool for tool in of_server if listing.is_after(tool.name))],
        key=lambda tool: tool.name,
        reverse=listing.query.descending,
    )
    items, more = listing.split(found, lambda tool: tool.name)
    return Page[Tool, str](items=list(items), next=more)


@router.get("/tools/{name}")
async def get_tool(name: PathText, services: ServicesDep, tenant: TenantDep) -> Tool:
    """Get one tool."""
    tool = services.deps.tools.server_tool(name)
    if tool is not None:
        return server_tool(tool)
    async with services.database.tenant(tenant) as tx:
        return registered_tool(await tools.get(tx, name))


@router.post("/tools/{name}/try")
async def try_tool(
    name: PathText, given: ToolTrialIn, services: ServicesDep, tenant: TenantDep, agent: AgentFilter
) -> ToolTrial:
    """Call a Python function, a webhook or a tool of an MCP server once, outside of any turn.

    It runs for real, in the limits of an agent's call; nothing is stored. A call that fails is an answer, too.
    With `agent` a Python function has that agent's memory, and a webhook is sent its id.
    """
    async with services.database.tenant(tenant) as tx:
        if agent is not None:
            await agents.get(tx, agent)
        tool, _ = await _find_named(services, tx, name)
    return await tool_trial.try_tool(services.deps, tool, given.arguments, tenant, agent)


@router.patch("/tools/{name}")
async def update_tool(
    name: PathText, change: ToolPatch, services: ServicesDep, tenant: TenantDep
) -> Tool:
    """Change a registered tool; what is left out stays. It counts from an agent's next step on."""
    check_own(services, name)
    values = change.values()
    if change.parameters is not None:
        await asyncio.to_thread(check_parameters, change.parameters)
    async with services.database.tenant(tenant) as tx:
        definition = await tools.get(tx, name)
        _check_change(definition.kind, set(values))
        if change.url is not None:
            check_url(change.url, services.networks)
        return registered_tool(await tools.update(tx, name, values))


@router.delete("/tools/{name}", status_code=204)
async def delete_tool(name: PathText, services: ServicesDep, tenant: TenantDep) -> None:
    """Delete a registered tool; agents that had it have it no more."""
    check_own(services, name)
    async with services.database.tenant(tenant) as tx:
        definition = await tools.get(tx, name)
        if definition.kind == "mcp":
            raise Conflict(
                f"{name} is a tool of an MCP server.", hint="Detach it, or delete its server."
            )
        await tools.delete(tx, name)


@router.get("/agents/{agent}/tools")
async def list_agent_tools(
    agent_id: AgentId, services: ServicesDep, tenant: TenantDep, listing: ByName
) -> Page[AgentTool, str]:
    """List what an agent can call, in the order in which the model sees it, with its rules."""
    async with services.database.tenant(tenant) as tx:
        await agents.get(tx, agent_id)
        grants = await tools.grants_of(tx, agent_id)
    said = {grant.name: grant for grant in grants}
    available = services.deps.tools.tools_of(grants)
    away = [grant.name for grant in grants if grant.attached and grant.name not in available]
    shown, more = listing.paginate([*available, *away], lambda name: name)
    items = [agent_tool(name, available.get(name), said.get(name)) for name in shown]
    return Page[AgentTool, str](items=items, next=more)


@router.put("/agents/{agent}/tools/{name}")
async def attach_tool(
    agent_id: AgentId, name: PathText, rules: ToolRulesIn, services: ServicesDep, tenant: TenantDep
) -> AgentTool:
    """Let an agent call a tool, by these rules; they take the place of those it had.

    It counts from the agent's next step on. An agent whose reply_mode is chat is refused: its model calls none.
    """
    async with services.database.tenant(tenant) as tx:
        grants = await tools.lock_grants(tx, agent_id)
        tool, grant = await _find_named(services, tx, name)
        grant = replace(grant, **rules.model_dump())
        await _check(services, tx, agent_id, ([*_without(grants, name), grant], tool))
        await tools.grant(tx, tenant, agent_id, grant)
    return agent_tool(name, tool, grant)


@router.delete("/agents/{agent}/tools/{name}", status_code=204)
async def detach_tool(
    agent_id: AgentId, name: PathText, services: ServicesDep, tenant: TenantDep
) -> None:
    """Take a tool from an agent, with its rules there."""
    async with services.database.tenant(tenant) as tx:
        grants = await tools.lock_grants(tx, agent_id)
        said = {grant.name: grant for grant in grants}
        tool = services.deps.tools.server_tool(name)
        by_default = tool is not None and tool.attached
        attached = said[name].attached if name in said else by_default
        if not attached:
            raise NotFound(
                f"The agent has no tool {name!r}.",
                hint="GET /v1/agents/{agent}/tools lists what it has.",
            )
        if not by_default:
            await tools.forget(tx, agent_id, name)
            return
        assert tool is not None
        grant = Grant(name, attached=False)
        await _check(services, tx, agent_id, ([*_without(grants, name), grant], tool))
        await tools.grant(tx, tenant, agent_id, grant)


def check_free(services: Services, name: str) -> None:
    """Raises Conflict if the server itself has a tool of this name."""
    if services.deps.tools.server_tool(name) is not None:
        raise Conflict(
            f"The server has a tool named {name!r} already.", hint="Choose another name."
        )


def check_own(services: Services, name: str) -> None:
    """Raises Conflict if a tool is the server's, which no tenant changes."""
    if services.deps.tools.server_tool(name) is not None:
        raise Conflict(f"{name!r} is a tool of the server, and can't be changed over the API.")


def _check_change(kind: str, fields: set[str]) -> None:
    allowed = {
        "webhook": {"description", "parameters", "url", "secret", "timeout", "retries"},
        "client": {"description", "parameters"},
        "mcp": set[str](),
    }[kind]
    if fields - allowed:
        raise InvalidInput(
            f"{', '.join(sorted(fields - allowed))}: a tool of kind {kind} has no such field to change."
        )


async def _find_named(services: Services, tx: Transaction, name: str) -> tuple[RunnableTool, Grant]:
    registry = services.deps.tools
    tool = registry.server_tool(name)
    if tool is not None:
        return tool, Grant(name, attached=True)
    definition = await tools.get(tx, name)
    return registry.tool_of(definition), Grant(name, attached=True, definition=definition)


def _without(grants: tuple[Grant, ...], name: str) -> list[Grant]:
    return [grant for grant in grants if grant.name != name]


async def _check(
    services: Services, tx: Transaction, agent_id: UUID, changed: tuple[list[Grant], RunnableTool]
) -> None:
    grants, tool = changed
    agent = await agents.get(tx, agent_id)
    options = AgentOptions.model_validate(agent.options)
    name = tool.spec.name
    attached = any(grant.name == name and grant.attached for grant in grants)
    if options.reply_mode == "chat" and attached and name != SEND_MESSAGE:
        raise InvalidInput(
            f"The agent would never call {name}: its reply_mode is chat.",
            hint='Give it the option reply_mode: "tools" first.',
        )
    check_rules(grants, tool, options.max_steps or services.deps.limits.max_steps)
