"""Bounds of what an MCP server answers, before the SDK looks at it."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
from mcp.shared.message import SessionMessage
from mcp.types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCResponse
from typing_extensions import override

MOST_BYTES = 4_000_000
"""Of an answer that is one JSON; the SDK limits events itself."""
MOST_VALUES = 50_000
MOST_PARTS = 2000
"""Parts of a result, or tools on a page: the SDK makes several complaints of each wrong one."""


class Limited(httpx2.AsyncByteStream):
    """An answer that is read whole, and so must not be of any size."""

    def __init__(self, inner: Any) -> None:  # noqa: ANN401 - of the client library
        self._inner = inner

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = commas = 0
        async for chunk in self._inner:
            size += len(chunk)
            commas += chunk.count(b",")
            if size > MOST_BYTES or commas > MOST_BYTES // 4:
                raise httpx2.ReadError(f"its answer has more than {MOST_BYTES} bytes")
            yield chunk

    @override
    async def aclose(self) -> None:
        await self._inner.aclose()


def bound_message(received: Any) -> Any:  # noqa: ANN401 - a message, or an error of the transport
    """The message; an error in the place of a result that holds too much."""
    message = received.message if isinstance(received, SessionMessage) else None
    if not isinstance(message, JSONRPCResponse) or not _holds_too_much(message.result):
        return received
    error = ErrorData(code=INTERNAL_ERROR, message="its answer holds too many values")
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=message.id, error=error))


def _holds_too_much(result: dict[str, Any]) -> bool:
    if any(isinstance(value, list) and len(value) > MOST_PARTS for value in result.values()):
        return True
    count = 0
    unseen: list[dict[str, Any] | list[Any]] = [result]
    while unseen:
        value = unseen.pop()
        members: Any = value.values() if isinstance(value, dict) else value
        count += len(members)
        if count > MOST_VALUES:
            return True
        unseen += [member for member in members if isinstance(member, dict | list)]
    return False
