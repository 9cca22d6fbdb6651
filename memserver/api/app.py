"""The ASGI application: routes, errors, and the services' lifetime."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastapi import APIRouter, FastAPI

import memserver
from memserver.api import errors
from memserver.api.routes import (
    agents,
    archival,
    calls,
    collections,
    health,
    mcp_servers,
    memory,
    messages,
    tools,
)
from memserver.settings import Settings
from memserver.wiring import Services, running_services

DESCRIPTION = """A MemGPT-style agent server: agents that keep what matters in a working context,
find what was said in recall storage, and keep documents in archival storage."""


def create_app(
    services: AbstractAsyncContextManager[Services] | None = None,
) -> FastAPI:
    """The application; `services` are those of the settings unless given."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with services or running_services(Settings()) as running:
            app.state.services = running
            yield

    app = FastAPI(
        title="memserver",
        version=memserver.__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        responses=errors.DOCUMENTED,
    )
    errors.install(app)
    v1 = APIRouter(prefix="/v1")
    for module in (
        agents,
        messages,
        memory,
        archival,
        collections,
        tools,
        mcp_servers,
        calls,
        health,
    ):
        v1.include_router(module.router)
    app.include_router(v1)
    return app
