"""The ASGI application: routes, errors, and the services' lifetime."""

import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import parent_process
from threading import Thread

from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

import memserver
from memserver.api import errors, metrics, pages
from memserver.api.ending import before_the_end
from memserver.api.mcp import McpEndpoint
from memserver.api.middleware.access import Access, BodyLimit, BodyLimits
from memserver.api.middleware.forwarded import Forwarded
from memserver.api.middleware.idempotency import REPLAYED, Idempotency
from memserver.api.middleware.methods import HeadAndOptions
from memserver.api.middleware.rate_limit import RateLimit
from memserver.api.middleware.request_log import REQUEST_ID, RequestLog
from memserver.api.middleware.security_headers import SecurityHeaders
from memserver.api.middleware.trailing_slash import TrailingSlash
from memserver.api.openai import chat, embeddings, models, responses
from memserver.api.openai import errors as openai_errors
from memserver.api.openapi import DocumentedApp, operation_id
from memserver.api.routes import (
    agent_files,
    agents,
    archival,
    calls,
    collections,
    documents,
    erasing,
    health,
    keys,
    mcp_servers,
    memory,
    messages,
    operations,
    sections,
    tenants,
    timers,
    tools,
    usage,
    webhooks,
    working_context,
)
from memserver.errors import DatabaseError, MemserverError
from memserver.settings import Settings
from memserver.wiring.patience import open_when_possible
from memserver.wiring.services import Services, running_services

DESCRIPTION = """A MemGPT-style agent server: agents that keep what matters in a working context,
find what was said in recall storage, and keep documents in archival storage."""


UNUSABLE = "The database can't be used as it is; the server's log says why."
EXPOSED_HEADERS = (
    "Memserver-Turn",
    REQUEST_ID,
    "Retry-After",
    REPLAYED,
    "X-Should-Retry",
    "WWW-Authenticate",
    "Content-Disposition",
)
"""What a page's script may read of an answer beside its content."""
# A request is compared with one route after the other: those of turns come first.
CONSOLE = "memserver.console"
"""A room of its own, without which the server runs, too."""
ROUTES = (
    messages,
    chat,
    responses,
    erasing,
    agent_files,
    agents,
    working_context,
    sections,
    timers,
    memory,
    archival,
    collections,
    documents,
    tools,
    mcp_servers,
    calls,
    webhooks,
    keys,
    tenants,
    usage,
    operations,
    models,
    embeddings,
    health,
)


def create_app(
    services: AbstractAsyncContextManager[Services] | None = None, settings: Settings | None = None
) -> FastAPI:
    """The application; settings are the environment's and services those of the settings unless given."""
    settings = settings or Settings()
    mcp = McpEndpoint(settings.request_max_bytes)
    app = DocumentedApp(
        _around(settings),
        title="memserver",
        version=memserver.__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry={
            "tracing": settings.otlp_endpoint is not None,
            "metrics": False,
            "logs": False,
            "operation_spans": False,
        },
        lifespan=_lifespan(mcp, services, settings),
        responses=errors.DOCUMENTED,
        generate_unique_id_function=operation_id,
        middleware=_middleware(settings),
    )
    errors.install(app)
    openai_errors.install(app)
    for module in ROUTES:
        app.include_router(module.router, prefix="/v1")
    app.include_router(pages.router)
    app.include_router(metrics.router)
    app.state.console = settings.console and find_spec(CONSOLE) is not None
    if app.state.console:
        import_module(f"{CONSOLE}.app").install(app)
    app.router.routes.append(mcp.route)
    # FastAPI would build them within the first request, and block every other one for some 300 ms.
    list(iter_route_contexts(app.routes))
    return app


def create_worker_app(settings: Settings) -> FastAPI:
    """That of one of several processes: without the main process it would hold the port, and nobody would stop it."""
    if parent_process() is not None:
        Thread(target=_end_with_parent, daemon=True).start()
    return create_app(settings=settings)


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def _lifespan(
    mcp: McpEndpoint, services: AbstractAsyncContextManager[Services] | None, settings: Settings
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def serving(
        app: FastAPI, made: AbstractAsyncContextManager[Services]
    ) -> AsyncIterator[None]:
        async with made as running, mcp.running(running):
            app.state.services = running
            with before_the_end(running.worker.drain):
                yield
            app.state.services = None

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        def report(error: MemserverError) -> None:
            app.state.waits_for = error.message if isinstance(error, DatabaseError) else UNUSABLE

        if services is not None:
            async with serving(app, services):
                yield
            return
        # A worker's settings have been checked by the process that started it: nothing that is wrong now may end the start,
        # since that would end the other workers, too.
        passing = (MemserverError,) if parent_process() else (DatabaseError,)
        async with open_when_possible(
            lambda: serving(app, running_services(settings)), report, passing
        ):
            yield

    return lifespan


def _around(settings: Settings) -> list[Middleware]:
    """What stands around every answer, the outermost first."""
    cors = Middleware(
        CORSMiddleware,
        allow_origins=settings.cors_origins,
        allow_methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
        # A page whose origin is trusted may send what it likes: OpenAI's SDK alone sends seven headers of its own. Without
        # cookies, "all" reveals nothing that a key doesn't.
        allow_headers=["*"],
        allow_private_network=True,
        expose_headers=EXPOSED_HEADERS,
    )
    proxies = [str(each) for each in settings.trusted_proxies]
    forwarded = Middleware(Forwarded, proxies, settings.root_path)
    return [
        Middleware(RequestLog),
        Middleware(SecurityHeaders),
        *([cors] if settings.cors_origins else []),
        Middleware(TrailingSlash),
        *([forwarded] if proxies or settings.root_path else []),
        Middleware(openai_errors.OpenAIErrors),
    ]


def _middleware(settings: Settings) -> list[Middleware]:
    most_bytes = BodyLimits(settings.request_max_bytes, settings.import_max_bytes)
    limit = RateLimit(settings.rate_limit, settings.rate_limit_burst)
    return [
        Middleware(HeadAndOptions),
        Middleware(
            Access,
            limit,
            most_bytes,
            settings.cors_origins,
            open_metrics=settings.metrics == "open",
        ),
        Middleware(BodyLimit, most_bytes),
        Middleware(Idempotency),
    ]
