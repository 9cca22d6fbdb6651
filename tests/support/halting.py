"""A model's endpoint that stops in the middle of each streamed answer until the test lets it go on."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tests.support.http_app import serving

PIECES = 3
"""That come before it stops: the role, the call's name, and the beginning of its arguments."""
WITHIN = 60


@dataclass
class HaltingEndpoint:
    app: ASGIApp
    url: str = ""
    halts: bool = True
    _gate: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def let_go(self, answers: int = 1) -> None:
        """Let as many go on that have stopped, or will."""
        self._gate.release(answers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sent = 0

        async def halting(message: Message) -> None:
            nonlocal sent
            if self.halts and message["type"] == "http.response.body" and message.get("more_body"):
                if sent == PIECES:
                    await run_in_threadpool(self._gate.acquire, True, WITHIN)
                sent += 1
            await send(message)

        await self.app(scope, receive, halting)


@contextmanager
def halting(app: ASGIApp) -> Iterator[HaltingEndpoint]:
    """The endpoint, on a real socket."""
    endpoint = HaltingEndpoint(app)
    with serving(endpoint) as url:
        endpoint.url = url
        yield endpoint
        endpoint.let_go(100)
