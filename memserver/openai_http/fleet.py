"""Several engines that serve the same models, as one endpoint: which of them a request goes to.

An agent's requests go to one engine, which has its prompt's prefix in its cache: the first of an order that rendezvous
hashing makes of the agent's id, the same in every process. An engine more or less moves its own share only. One that is
down, or much fuller than the others, is passed over ("consistent hashing with bounded loads", Mirrokni et al. 2016).
"""

import hashlib
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from memserver.errors import ModelUnavailable
from memserver.openai_http.circuit import Circuit

BALANCE, FEW = 1.25, 8
"""An engine takes so many times the mean of what is in flight, and so many requests in any case."""
OnEnd = Callable[[float, str, str], None]
"""Takes the seconds of a request, the engine's address, and the error's code, empty where it succeeded."""
_agent: ContextVar[str] = ContextVar("_agent", default="")


@contextmanager
def pinned_to(agent: object) -> Iterator[None]:
    """The requests of this block are this agent's."""
    token = _agent.set(str(agent))
    try:
        yield
    finally:
        _agent.reset(token)


class Engine:
    def __init__(self, url: str, address: str, clock: Callable[[], float]) -> None:
        self.url = url
        self.address = address
        self.circuit = Circuit(clock=clock, name=f"The engine {address}", lost_at_once=True)
        self.in_flight = 0

    @contextmanager
    def busy(self) -> Iterator[None]:
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1

    def weight(self, agent: str) -> bytes:
        return hashlib.blake2b(f"{self.address} {agent}".encode(), digest_size=8).digest()


class Fleet:
    """The engines of one endpoint: one circuit breaker of them all, and an order for each agent."""

    def __init__(
        self,
        engines: Sequence[tuple[str, str]],
        *,
        pins: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make it of URLs, each with the address that stands for it; without `pins` the least busy one is next."""
        self.engines = tuple(Engine(url, address, clock) for url, address in engines)
        self.disagreement = ""
        """What the engines' lists of models differ in, for people; empty while they agree."""
        self.on_end: OnEnd = lambda _seconds, _address, _error: None
        self._pins = pins

    @property
    def is_open(self) -> bool:
        """Whether no engine is asked."""
        return all(engine.circuit.is_open for engine in self.engines)

    def refuse_if_open(self) -> None:
        """Refuse while every engine's circuit does. Raises ModelUnavailable."""
        if all(engine.circuit.refuses for engine in self.engines):
            raise ModelUnavailable(f"None of the model's engines is asked now. {self.describe()}")

    def describe(self) -> str:
        """What is known of outages, for people to read; empty while there is none."""
        outages = ((engine.address, engine.circuit.describe()) for engine in self.engines)
        return " ".join(f"{address}: {outage}" for address, outage in outages if outage)

    def order(self) -> list[Engine]:
        """Engines in the order in which they are asked for the agent of this task; those that are down are left out.

        Raises:
            ModelUnavailable: all are down.
        """
        self.refuse_if_open()
        up = [engine for engine in self.engines if not engine.circuit.refuses]
        agent = _agent.get()
        if self._pins and agent:
            up.sort(key=lambda engine: engine.weight(agent), reverse=True)
        else:
            up.sort(key=lambda engine: (engine.in_flight, random.random()))
        in_flight = sum(engine.in_flight for engine in up)
        most = max(FEW, math.ceil(BALANCE * (in_flight + 1) / len(up)))
        up.sort(key=lambda engine: engine.in_flight >= most)
        return up
