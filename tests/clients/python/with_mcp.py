"""MCP's own Python SDK: with a key; and by OAuth first, then with the key."""

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthRegistrationError
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata


class Storage:
    async def get_tokens(self):
        return None

    async def set_tokens(self, tokens):
        raise AssertionError

    async def get_client_info(self):
        return None

    async def set_client_info(self, client_info):
        raise AssertionError


async def never(*_):
    raise AssertionError("There is nowhere to go.")


async def agents(url, **http):
    async with (
        httpx2.AsyncClient(**http) as client,
        streamable_http_client(f"{url.removesuffix('/v1')}/mcp", http_client=client) as (
            read,
            write,
            *_,
        ),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        found = await session.call_tool("list_agents", {})
        return [each["name"] for each in found.structured_content["result"]]


async def key(url, key):
    return await agents(url, headers={"Authorization": f"Bearer {key}"})


async def oauth_first(url, secret):
    metadata = OAuthClientMetadata(redirect_uris=["http://localhost:1/callback"])
    provider = OAuthClientProvider(url.removesuffix("/v1"), metadata, Storage(), never, never)
    error = None
    try:
        await agents(url, auth=provider)
    except (OAuthRegistrationError, BaseExceptionGroup) as failed:
        error = failed
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return [str(error), *await key(url, secret)]
