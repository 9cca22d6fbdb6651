"""Serves an app on a real socket in a thread, for tests of what speaks HTTP."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp


@contextlib.contextmanager
def serving(app: ASGIApp) -> Iterator[str]:
    """The base URL of the app. The socket listens before the server runs, so nothing is waited for."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    config = uvicorn.Config(
        app, log_level="error", ws="none", lifespan="off", timeout_graceful_shutdown=0
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
