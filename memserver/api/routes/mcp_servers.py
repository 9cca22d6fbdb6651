"""MCP servers over HTTP whose tools a tenant's agents can attach."""

from uuid import UUID

from memserver.api.dependencies import BeginDep, ById, ServicesDep, TenantDep
from memserver.api.json_body import Router
from memserver.api.schemas.answers import mcp_server
from memserver.api.schemas.tools import McpServerIn
from memserver.errors import Conflict
from memserver.storage import tools
from memserver.storage.tools import NewMcpServer
from memserver.tools.outbound.addresses import check_url
from memserver.wire.base import Page
from memserver.wire.tools import McpServer
from memserver.wiring.services import Services

router = Router(prefix="/mcp-servers", tags=["MCP servers"])


@router.post("", status_code=201)
async def create_mcp_server(
    new: McpServerIn, services: ServicesDep, tenant: TenantDep
) -> McpServer:
    """Register an MCP server over streamable HTTP; it is asked for its tools, which agents then attach.

    Servers that are processes (stdio) are named in the server's settings only.
    """
    check_url(new.url, services.networks)
    if new.name in services.mcp.names:
        raise Conflict(
            f"The settings have an MCP server named {new.name!r} already.",
            hint="Choose another name.",
        )
    made = NewMcpServer(new.name, new.url, new.headers, new.timeout)
    listed = await services.mcp.list_tools(made)
    async with services.database.tenant(tenant) as tx:
        server = await tools.create_server(tx, tenant, made)
        stored = await tools.relist(tx, tenant, server.id, listed.tools)
        server = await tools.get_server(tx, server.id)
    return mcp_server(server, stored, listed.refused)


@router.get("")
async def list_mcp_servers(begin: BeginDep, listing: ById) -> Page[McpServer, UUID]:
    """List the registered MCP servers."""
    async with begin() as tx:
        found, more = listing.split(
            await tools.list_servers(tx, listing.query), lambda server: server.id
        )
        items = [mcp_server(server, await tools.tools_of(tx, server.id)) for server in found]
    return Page[McpServer, UUID](items=items, next=more)


@router.get("/{server_id}")
async def get_mcp_server(server_id: UUID, begin: BeginDep) -> McpServer:
    """Get one registered MCP server."""
    async with begin() as tx:
        server = await tools.get_server(tx, server_id)
        return mcp_server(server, await tools.tools_of(tx, server_id))


@router.post("/{server_id}/refresh")
async def refresh_mcp_server(
    server_id: UUID, services: ServicesDep, tenant: TenantDep
) -> McpServer:
    """Ask an MCP server for its tools again; agents lose those that are gone."""
    return await _relist(services, tenant, server_id)


@router.delete("/{server_id}", status_code=204)
async def delete_mcp_server(server_id: UUID, begin: BeginDep) -> None:
    """Delete an MCP server with its tools; agents that had them have them no more."""
    async with begin() as tx:
        await tools.delete_server(tx, server_id)


async def _relist(services: Services, tenant: str, server_id: UUID) -> McpServer:
    async with services.database.tenant(tenant) as tx:
        server = await tools.get_server(tx, server_id)
    listed = await services.mcp.list_tools(server)
    async with services.database.tenant(tenant) as tx:
        stored = await tools.relist(tx, tenant, server_id, listed.tools)
        server = await tools.get_server(tx, server_id)
    return mcp_server(server, stored, listed.refused)
