"""Who may ask the model now: a bound on requests in flight, with a fair queue before it.

In turn among the tenants that wait, and by arrival within a tenant: one tenant's thousand turns don't stand before
another's first. asyncio's own semaphore has one line for everybody.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from typing_extensions import override

from memserver.errors import ModelUnavailable
from memserver.llm.base import Answer, ChatModel, ModelDecorator, TextSink
from memserver.metering import timed
from memserver.openai_http.circuit import Circuit
from memserver.openai_http.fleet import Fleet
from memserver.openai_http.fleet_client import AnswerLost
from memserver.telemetry.metrics import NO_METRICS, Recorder

_Queue = OrderedDict[asyncio.Future[None], None]


class FairSemaphore:
    """A number of slots, given to those who wait in turn among their keys.

    Taking and giving cost the same however many wait, and a slot that is given back wakes one waiter.
    """

    def __init__(self, slots: int) -> None:
        self.at_most = self._free = slots
        self._waiting: OrderedDict[str, _Queue] = OrderedDict()
        """By key, whose turn it is first; no queue is empty."""

    @property
    def free(self) -> int:
        return self._free

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    @asynccontextmanager
    async def one(self, key: str) -> AsyncIterator[None]:
        await self._take(key)
        try:
            yield
        finally:
            self._give()

    async def _take(self, key: str) -> None:
        if self._free:
            self._free -= 1
            return
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue = self._waiting.setdefault(key, OrderedDict())
        queue[given] = None
        try:
            await given
        except asyncio.CancelledError:
            if given.done() and not given.cancelled():
                self._give()  # it came in the same moment, and goes on to the next
            else:
                self._forget(key, queue, given)
            raise

    def _give(self) -> None:
        """Hand the slot to whose turn it is; it is nobody's only if nobody waits."""
        while self._waiting:
            key, queue = next(iter(self._waiting.items()))
            given, _ = queue.popitem(last=False)
            if not queue:
                del self._waiting[key]
            if not given.done():  # else it was cancelled, and has not run yet to say so
                if queue:
                    self._waiting.move_to_end(key)
                given.set_result(None)
                return
        self._free += 1

    def _forget(self, key: str, queue: _Queue, given: asyncio.Future[None]) -> None:
        queue.pop(given, None)
        if not queue and self._waiting.get(key) is queue:
            del self._waiting[key]


class EndpointReadiness(Protocol):
    async def wait(self) -> None:
        """Wait until it is. Raises ModelUnavailable if it never will be."""
        return

    async def is_lost(self) -> bool:
        """Whether an endpoint that gave no answer is gone, and will be back: then `wait` waits again."""
        return False

    def loading(self) -> str:
        return ""

    def explain(self, error: ModelUnavailable) -> ModelUnavailable:
        return error

    async def aclose(self) -> None:
        return


class AlwaysReady(EndpointReadiness):
    """An endpoint that somebody else runs: its failures are errors at once."""


@dataclass(frozen=True, slots=True)
class SharedEndpoint:
    slots: FairSemaphore
    circuit: Circuit | Fleet
    readiness: EndpointReadiness = field(default_factory=AlwaysReady)


class QueuedModel(ModelDecorator):
    """A model as one tenant has it: its answers are waited for in the tenant's turn.

    Counting tokens, and what the model is, are asked without a slot: they generate nothing.
    """

    def __init__(
        self, inner: ChatModel, shared: SharedEndpoint, tenant: str, recorder: Recorder = NO_METRICS
    ) -> None:
        super().__init__(inner)
        self._shared = shared
        self._tenant = tenant
        self._recorder = recorder

    @override
    async def context_window(self) -> int:
        await self._shared.readiness.wait()
        return await self.inner.context_window()

    @override
    async def check(self) -> None:
        try:
            await self.inner.check()
        except ModelUnavailable as error:
            raise self._shared.readiness.explain(error) from error

    @override
    async def around(
        self, ask: Callable[[TextSink | None], Awaitable[Answer]], on_text: TextSink | None
    ) -> Answer:
        """Ask when the endpoint is ready; and once more if it died before any text was heard, or another engine is there."""
        heard = False

        def hear(text: str) -> None:
            nonlocal heard
            heard = True
            if on_text is not None:
                on_text(text)

        sink = None if on_text is None else hear
        readiness = self._shared.readiness
        with timed("queue"):
            await readiness.wait()
        try:
            async with self._slot():
                return await ask(sink)
        except AnswerLost:
            # What was heard is void, and what counts follows when it is whole.
            sink = None if heard else sink
        except ModelUnavailable:
            if not await readiness.is_lost() or heard:
                raise
        await readiness.wait()
        async with self._slot():
            return await ask(sink)

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        self._shared.circuit.refuse_if_open()  # nobody queues for what would be refused
        slot = self._shared.slots.one(self._tenant)
        async with AsyncExitStack() as stack:
            with timed("queue"), self._waiting():
                await stack.enter_async_context(slot)
            yield

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        if self._shared.slots.free:
            yield
            return
        self._recorder.add_waiting(1)
        try:
            yield
        finally:
            self._recorder.add_waiting(-1)
