"""The command `mcp`."""

import asyncio
import logging.config
from typing import Annotated

import typer

from memserver.cli.options import logging_of, read_settings
from memserver.settings import Settings
from memserver.storage.api_keys import DEFAULT_TENANT
from memserver.wiring.database import database_urls
from memserver.wiring.services import check_settings, memory_alone


def mcp(
    agent: Annotated[
        str | None, typer.Option(help="Name or id: offer this agent's memory alone.")
    ] = None,
    tenant: Annotated[str, typer.Option(help="Whose agents.")] = DEFAULT_TENANT,
    http_port: Annotated[
        int | None,
        typer.Option(help="Serve streamable HTTP at /mcp on 127.0.0.1 instead of stdio."),
    ] = None,
) -> None:
    """Offer agents' memories as an MCP server on stdio, or on HTTP."""
    settings = read_settings()
    check_settings(settings)
    logging.config.dictConfig(logging_of(settings))
    with database_urls(settings) as urls:
        asyncio.run(_mcp(settings, urls.app, (tenant, agent), http_port))


async def _mcp(
    settings: Settings, app_url: str, offered: tuple[str, str | None], port: int | None
) -> None:
    from memserver.api.mcp_server import Memories, always, make_server  # noqa: PLC0415 - a second long

    async with memory_alone(settings, app_url) as (memory, models):
        tenant, agent = offered
        memories = Memories(*memory, always(tenant), agent, models)
        await memories.check(tenant)
        server = make_server(memories)
        if port is None:
            await server.run_stdio_async()
        else:
            await server.run_streamable_http_async(host="127.0.0.1", port=port)
