"""The command `serve`."""

import asyncio
import logging.config
import os
import signal
import socket
import sys
from contextlib import ExitStack, suppress
from functools import partial
from typing import Annotated

import typer
import uvicorn
from uvicorn.config import STARTUP_FAILURE

from memserver import __version__
from memserver.api.app import create_worker_app
from memserver.api.bounded_http import BoundedHttp
from memserver.cli.console import console
from memserver.cli.keys import check_keys, ensure_admin_key
from memserver.cli.local_engine import local_engine
from memserver.cli.options import logging_of, read_settings
from memserver.cli.workers import START_SECONDS, Workers
from memserver.errors import SetupError
from memserver.local.engine.address import publish_address
from memserver.local.engine.paths import EnginePaths
from memserver.settings import Settings
from memserver.telemetry.prometheus import SHARED_FOLDER
from memserver.telemetry.shared_folder import shared_folder
from memserver.wiring.database import database_urls
from memserver.wiring.providers import refuse_unfit_embedder
from memserver.wiring.services import check_settings

GRACE_SECONDS = 5
"""What running requests get when the server has to end; their turns continue elsewhere."""
KEEP_ALIVE_SECONDS = 75
"""Longer than clients keep an idle connection, so that none sends on one that we just closed."""


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes that serve.")] = None,
    tools: Annotated[
        list[str] | None, typer.Option(help="A Python module with tools; may be given again.")
    ] = None,
) -> None:
    """Serve agents over HTTP, with the embedded Postgres and the local model unless others are set."""
    named = ",".join(tools) if tools else None
    settings = read_settings(host=host, port=port, workers=workers, tools=named)
    check_settings(settings)
    _check_address(settings.host, settings.port)
    asyncio.run(refuse_unfit_embedder(settings))
    logging.config.dictConfig(logging_of(settings))
    # uvicorn raises the signal again when it has shut down; this lets our own clean-up run then.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    _say_where(settings)
    with ExitStack() as stack:
        if settings.workers > 1 and settings.metrics != "off":
            # The workers' prometheus-client looks there.
            os.environ[SHARED_FOLDER] = stack.enter_context(shared_folder())
        if settings.llm_base_url is None:  # first of all, since it takes longest
            local, settings = stack.enter_context(local_engine(settings, announced=True))
            stack.enter_context(publish_address(EnginePaths(settings.home).address, local.base_url))
        urls = stack.enter_context(database_urls(settings))
        ensure_admin_key(urls.app, settings)
        check_keys(urls.app, settings)
        config = uvicorn.Config(
            partial(create_worker_app, settings),
            factory=True,
            host=settings.host,
            port=settings.port,
            workers=settings.workers,
            log_config=logging_of(settings),
            http=BoundedHttp,
            ws="none",
            server_header=False,
            proxy_headers=False,  # `Forwarded` reads them
            timeout_graceful_shutdown=GRACE_SECONDS,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_worker_healthcheck=START_SECONDS,
        )
        _run(config)


def _say_where(settings: Settings) -> None:
    """The console's address before all else: it is where to begin."""
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(settings.host, settings.host)
    address = f"http://{host}:{settings.port}"
    if settings.console:
        console.print(f"Open the console in a browser: {address}/")
    console.print(f"memserver {__version__} on {address}/docs")


def _run(config: uvicorn.Config) -> None:
    """As uvicorn.run, which gives several processes no application but one that has a name and no settings."""
    if config.workers > 1:
        Workers(config, sockets=[config.bind_socket()]).run()
        return
    server = uvicorn.Server(config)
    with suppress(KeyboardInterrupt):
        server.run()
    if not server.started:
        sys.exit(STARTUP_FAILURE)


def _check_address(host: str, port: int) -> None:
    """Find out whether we can listen there, before anything is started for it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        raise SetupError(
            f"Can't listen on {host}, port {port}: {error.strerror}.",
            hint="End what uses it, or choose another one: memserver serve --port 8284.",
        ) from error
