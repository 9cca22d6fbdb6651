"""The application for tests: its hundred routes take longer to build than most tests run, so tests take turns with it.

What stands below it, the services with their database, is each test's own.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from types import TracebackType

from fastapi import FastAPI
from typing_extensions import override

from memserver.api.app import create_app
from memserver.settings import Settings
from memserver.wiring.services import Services

Running = AbstractAsyncContextManager[Services]


class Exchanged(Running):
    """The services of whichever test has the application."""

    current: Running

    @override
    async def __aenter__(self) -> Services:
        return await self.current.__aenter__()

    @override
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self.current.__aexit__(kind, error, trace)


READ = (
    "console",
    "request_max_bytes",
    "import_max_bytes",
    "cors_origins",
    "trusted_proxies",
    "root_path",
    "metrics",
)
"""Settings that the application itself reads. It gets no others: a test would notice that it reads one more."""
_idle: dict[str, list[tuple[FastAPI, Exchanged]]] = defaultdict(list)


@contextmanager
def application(services: Running, settings: Settings) -> Iterator[FastAPI]:
    """One over these services that nobody else uses; its own where it counts requests, and after a test that failed."""
    if settings.rate_limit:
        yield create_app(services, settings)
        return
    read = settings.model_dump(include=set(READ))
    idle = _idle[repr(read)]
    if idle:
        app, exchanged = idle.pop()
    else:
        exchanged = Exchanged()
        app = create_app(exchanged, Settings(_env_file=None, **read))
    exchanged.current = services
    yield app
    idle.append((app, exchanged))
