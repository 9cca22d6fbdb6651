"""Serves an app on a real socket in a thread, for tests of what speaks HTTP.

Starting and stopping a server takes a tenth of a second: a module keeps one, with a `Current` app that
each test exchanges.
"""

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Literal

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from memserver.api.bounded_http import BoundedHttp


class Current:
    """An app that answers as the app which is set."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


@contextlib.contextmanager
def serving(
    app: ASGIApp,
    *,
    lifespan: Literal["on", "off"] = "off",
    http: type[BoundedHttp] = BoundedHttp,
) -> Iterator[str]:
    """The base URL of the app. The socket listens before the server runs, so nothing is waited for."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    config = uvicorn.Config(
        app,
        log_level="error",
        http=http,
        ws="none",
        server_header=False,
        lifespan=lifespan,
        timeout_graceful_shutdown=0,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
