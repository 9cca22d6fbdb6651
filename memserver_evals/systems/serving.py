"""An ASGI app on a port of this machine, in a thread, while a block runs."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

STOP_SECONDS = 20


@contextmanager
def served(app: ASGIApp, *, lifespan: bool = False) -> Iterator[str]:
    """The app's address. The socket listens before the server runs, so nothing has to be waited for."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    config = uvicorn.Config(
        app,
        log_level="critical",
        ws="none",
        lifespan="on" if lifespan else "off",
        timeout_graceful_shutdown=0,
        timeout_keep_alive=75,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(STOP_SECONDS)
        listener.close()
