"""Connections to MCP servers, by the official SDK: opened, watched, given up when they die.

Owns both transports and, for those that users name, the check of the address. Leaves to
`memserver.tools` which servers there are and what their tools become.
"""

import asyncio
import json
import logging
from base64 import b64decode
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Self

import anyio
import httpx2
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CONNECTION_CLOSED, INVALID_REQUEST, CallToolResult, Implementation
from pydantic import ValidationError
from typing_extensions import override

import memserver
from memserver.errors import ToolError
from memserver.tools.outbound.addresses import AddressRefused, Networks, resolve
from memserver.tools.outbound.mcp import (
    CONNECT_SECONDS,
    LIST_SECONDS,
    MOST_TOOLS,
    BadAnswer,
    HttpServer,
    ListedTool,
    NotDelivered,
    StdioServer,
)
from memserver.tools.outbound.mcp_bounds import Limited, bound_message
from memserver.tools.outbound.reasons import drop_urls, for_log, reason
from memserver.tools.shown import ToolPicture

logger = logging.getLogger(__name__)
# The SDK writes down whole URLs, those of redirects too, which may hold secrets. What failed is said here.
logging.getLogger("mcp.client").setLevel(logging.CRITICAL)

_CLOSE_SECONDS = 5.0
_MOST_PAGES = 100
_STREAM_SECONDS = 3600
"""A call's time is limited by who makes it; its stream may be silent meanwhile."""
_LONGEST_REASON = 300
_NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout)


class SdkConnection:
    """A connection by the SDK, which wants it opened and closed by one task.

    Attributes:
        dead: set as soon as it is known that nothing more can be asked over it.
    """

    def __init__(self, server: StdioServer | HttpServer) -> None:
        self._server = server
        self._client: Client | None = None
        self._ready = asyncio.Event()
        self._closing = asyncio.Event()
        self.dead = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> Self:
        """Connect. Raises ToolError: the server can't be reached or speaks no MCP."""
        self._task = asyncio.create_task(self._hold(), name="mcp connection")
        self._task.add_done_callback(lambda _: self.dead.set())
        ready = asyncio.create_task(self._ready.wait())
        try:
            await asyncio.wait(
                {self._task, ready}, timeout=CONNECT_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        finally:
            ready.cancel()
        if self._client is None or self._task.done():
            failed = _reason(self._task) or f"no answer within {CONNECT_SECONDS:g} seconds"
            if isinstance(self._server, HttpServer) and (error := _error(self._task)):
                logger.warning("An MCP server failed: %s", for_log(self._server.url, error))
            await self.close()
            raise ToolError(f"The MCP server can't be reached: {failed}.")
        return self

    async def tools(self) -> list[ListedTool]:
        """Every tool that the server lists. Raises ToolError."""
        try:
            async with asyncio.timeout(LIST_SECONDS):
                return await self._all_pages()
        except TimeoutError as error:
            raise BadAnswer(
                f"The MCP server did not list its tools within {LIST_SECONDS:g} seconds."
            ) from error

    async def _all_pages(self) -> list[ListedTool]:
        found: list[ListedTool] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            listed = await self._answer_to(
                self._live.list_tools(cursor=cursor, cache_mode="bypass")
            )
            found += [
                ListedTool(each.name, each.description or each.title or "", each.input_schema)
                for each in listed.tools
            ]
            if len(found) > MOST_TOOLS:
                raise BadAnswer(f"The MCP server lists more than {MOST_TOOLS} tools.")
            cursor = listed.next_cursor
            if cursor is None:
                break
        return found

    async def call(self, name: str, arguments: Mapping[str, Any]) -> object:
        """Call a tool; gives its answer as text.

        Raises:
            NotDelivered: the connection is dead, and the call did not reach the server.
            ToolError: it failed otherwise.
        """
        if self.dead.is_set():
            raise NotDelivered
        result: CallToolResult = await self._answer_to(self._live.call_tool(name, dict(arguments)))
        return result_of(result)

    async def close(self) -> None:
        """End it; one that does not end in time is cut off."""
        self._closing.set()
        if self._task is None:
            return
        await asyncio.wait({self._task}, timeout=_CLOSE_SECONDS)
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=_CLOSE_SECONDS)
        _reason(self._task)

    @property
    def _live(self) -> Client:
        assert self._client is not None
        return self._client

    async def _answer_to(self, asked: Any) -> Any:  # noqa: ANN401 - of the SDK
        try:
            return await asked
        except MCPError as error:
            if error.code == INVALID_REQUEST and "terminated" in error.message:
                self.dead.set()  # the server has forgotten the session: it has started again
                raise NotDelivered from error
            if error.code != CONNECTION_CLOSED:
                said = drop_urls(error.message)[:_LONGEST_REASON]
                raise ToolError(f"The MCP server answered: {said}") from error
        except ValidationError as error:
            raise BadAnswer(
                f"The MCP server's answer is no valid MCP: {error.error_count()} faults in a {error.title}."
            ) from error
        self.dead.set()
        assert self._task is not None
        self._closing.set()
        await asyncio.wait({self._task}, timeout=_CLOSE_SECONDS)
        if _never_sent(self._task):
            raise NotDelivered
        raise ToolError(
            "The connection to the MCP server broke; whether the call took effect is not known."
        )

    async def _hold(self) -> None:
        info = Implementation(name="memserver", version=memserver.__version__)
        async with Client(
            _watched(_transport(self._server), self.dead),
            client_info=info,
            read_timeout_seconds=_STREAM_SECONDS,
        ) as client:
            # It would hold results to a schema of the server's, which takes as long as that wants.
            client.session.validate_tool_result = _any_result  # type: ignore[assignment, method-assign]
            self._client = client
            self._ready.set()
            waiting = [asyncio.create_task(event.wait()) for event in (self._closing, self.dead)]
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in waiting:
                    task.cancel()


async def _any_result(_name: str, _result: CallToolResult) -> None:
    """Take a tool's result as it is; a model reads its text."""


def result_of(result: CallToolResult) -> object:
    """What a tool has answered, as text, or as texts and pictures. Raises ToolError: the tool says that it failed."""
    parts = [_block_text(block) for block in result.content if block.type != "image"]
    text = "\n".join(part for part in parts if part)
    if not text and result.structured_content is not None:
        text = json.dumps(result.structured_content, ensure_ascii=False)
    if result.is_error:
        raise ToolError(text or "The tool failed and does not say why.")
    try:
        pictures = [
            ToolPicture(b64decode(each.data)) for each in result.content if each.type == "image"
        ]
    except ValueError as error:
        raise ToolError("It returned a picture that is no base64.") from error
    return [*([text] if text else []), *pictures] if pictures else text


@asynccontextmanager
async def _watched(
    transport: AbstractAsyncContextManager[Any], dead: asyncio.Event
) -> AsyncIterator[Any]:
    """A transport that sets an event when the server has closed its end."""
    async with transport as (read, write):
        yield _WatchedRead(read, dead), write


class _WatchedRead:
    def __init__(self, inner: Any, dead: asyncio.Event) -> None:  # noqa: ANN401 - of the SDK
        self._inner = inner
        self._dead = dead

    async def receive(self) -> Any:  # noqa: ANN401
        try:
            return bound_message(await self._inner.receive())
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self._dead.set()
            raise

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:  # noqa: ANN401
        try:
            return bound_message(await self._inner.__anext__())
        except (StopAsyncIteration, anyio.ClosedResourceError):
            self._dead.set()
            raise

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *ended: Any) -> Any:  # noqa: ANN401
        return await self._inner.__aexit__(*ended)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._inner, name)


class _CheckedTransport(httpx2.AsyncBaseTransport):
    """Connects to the addresses that were checked, whatever the DNS says a moment later."""

    def __init__(self, networks: Networks) -> None:
        self._networks = networks
        self._inner = httpx2.AsyncHTTPTransport(trust_env=False)

    @override
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        host = request.url.host
        port = request.url.port or {"https": 443}.get(request.url.scheme, 80)
        try:
            [address, *_] = await resolve(host, port, self._networks)
        except AddressRefused as error:
            raise httpx2.ConnectError(str(error), request=request) from error
        except OSError as error:
            raise httpx2.ConnectError(f"{host} can't be resolved", request=request) from error
        # The Host header was set before; the certificate is checked against the name.
        checked = httpx2.Request(
            request.method,
            request.url.copy_with(host=address),
            headers=request.headers,
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": host},
        )
        response = await self._inner.handle_async_request(checked)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.ReadError("it answers compressed, unasked", request=request)
        if response.headers.get("content-type", "").startswith("application/json"):
            response.stream = Limited(response.stream)
        return response

    @override
    async def aclose(self) -> None:
        await self._inner.aclose()


def _transport(server: StdioServer | HttpServer) -> AbstractAsyncContextManager[Any]:
    if isinstance(server, HttpServer):
        return _http(server)
    return stdio_client(
        StdioServerParameters(command=server.command, args=list(server.args), env=dict(server.env))
    )


@asynccontextmanager
async def _http(server: HttpServer) -> AsyncIterator[Any]:
    networks = server.networks
    transport = None if networks is None else _CheckedTransport(networks)
    async with (
        httpx2.AsyncClient(
            transport=transport,
            headers={"Accept-Encoding": "identity", **server.headers},
            timeout=httpx2.Timeout(CONNECT_SECONDS, read=_STREAM_SECONDS),
            trust_env=networks is None,  # a proxy would connect where it likes
        ) as client,
        streamable_http_client(server.url, http_client=client) as streams,
    ):
        yield streams


def _block_text(block: Any) -> str:  # noqa: ANN401 - one of several of the SDK's
    if block.type == "text":
        return str(block.text)
    if block.type == "resource":
        text = getattr(block.resource, "text", None)
        return str(text) if text is not None else f"[{block.resource.uri}: no text]"
    if block.type == "resource_link":
        return f"[{block.name}: {block.uri}]"
    return f"[{block.type} of type {block.mime_type}: no text]"


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in _leaves(each)]
    return [error]


def _reason(task: "asyncio.Task[None]") -> str:
    """Why a connection's task has ended, if by an error."""
    match _error(task):
        case None:
            return ""
        case httpx2.HTTPStatusError(response=response):  # its text has the whole URL
            return f"it answered {response.status_code}"
        case MCPError() as error:
            return drop_urls(str(error))[:_LONGEST_REASON].strip(". ")
        case ValidationError() as error:
            return f"its answer is no valid MCP: {error.error_count()} faults in a {error.title}"
        case httpx2.TransportError(__cause__=None) as error:  # ours
            return str(error)
        case error:
            return reason(error) or "it speaks no MCP"


def _error(task: "asyncio.Task[None]") -> BaseException | None:
    if not task.done() or task.cancelled():
        return None
    error = task.exception()
    return None if error is None else _leaves(error)[0]


def _never_sent(task: "asyncio.Task[None]") -> bool:
    if not task.done() or task.cancelled():
        return False
    error = task.exception()
    return error is not None and all(isinstance(each, _NEVER_SENT) for each in _leaves(error))
