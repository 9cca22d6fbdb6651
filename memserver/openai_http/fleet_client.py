"""The connection to several engines as to one: what one of them can't answer, the next one is asked."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import replace

from typing_extensions import override

from memserver.errors import ModelError, ModelNotFound, ModelUnavailable
from memserver.messages import JsonObject
from memserver.openai_http.circuit import Circuit
from memserver.openai_http.client import EndpointClient
from memserver.openai_http.endpoint import Endpoint
from memserver.openai_http.fleet import Engine, Fleet

logger = logging.getLogger(__name__)

_ELSEWHERE = (ModelUnavailable, ModelNotFound)
"""What another engine may answer: an adapter, for one, may not be loaded everywhere yet."""


class AnswerLost(ModelUnavailable):
    """An engine went away in the middle of its answer, and another one can be asked."""


def connect(endpoint: Endpoint, circuit: Circuit | Fleet | None = None) -> EndpointClient:
    """A client of an endpoint, of one engine or of several. Without a circuit it records no outage."""
    if endpoint.fleet is not None:
        return FleetClient(endpoint, endpoint.fleet, records=circuit is not None)
    return EndpointClient(endpoint, circuit if isinstance(circuit, Circuit) else None)


async def survey(endpoint: Endpoint, fleet: Fleet, *, within: float = 3) -> str:
    """Ask every engine for its list, and say how each does, and what the lists differ in."""
    client = FleetClient(replace(endpoint, timeout=within, max_retries=0), fleet, records=True)
    try:
        with suppress(ModelError):
            await client.check()
        states = [f"{engine.address} {client.found[engine]}" for engine in fleet.engines]
    finally:
        await client.aclose()
    return "; ".join(filter(None, [*states, fleet.disagreement]))


class FleetClient(EndpointClient):
    def __init__(self, endpoint: Endpoint, fleet: Fleet, *, records: bool) -> None:
        """Make it; with `records` its requests count: in an engine's circuit, its load and its metrics."""
        super().__init__(endpoint)
        self._fleet = fleet
        self._records = records
        self.found: dict[Engine, str] = {}
        """How each engine did when the lists were read last."""
        self._clients = {
            engine: EndpointClient(
                replace(endpoint, base_url=engine.url, title=f"engine {engine.address}"),
                engine.circuit if records else None,
            )
            for engine in fleet.engines
        }

    @override
    async def models(self) -> list[JsonObject] | None:
        self._fleet.refuse_if_open()
        return await self._lists(check=False)

    @override
    async def check(self) -> list[JsonObject] | None:
        return await self._lists(check=True)

    @override
    async def post(self, path: str, body: bytes, *, hands_on: bool = False) -> JsonObject:
        for engine, last in self._candidates():
            async with self._elsewhere(engine, last=last):
                with self._counted(engine):
                    return await self._clients[engine].post(path, body, hands_on=not last)
        raise AssertionError("the last one answers or raises")

    @override
    async def command(self, path: str, body: bytes) -> None:
        """Send it to every engine. Raises as one engine's does; an engine that is down counts before one that refuses."""
        asked = (client.command(path, body) for client in self._clients.values())
        found = await asyncio.gather(*asked, return_exceptions=True)
        failures = [each for each in found if each is not None]
        failures.sort(key=lambda error: not isinstance(error, ModelUnavailable))
        if failures:
            raise failures[0]

    @override
    async def stream(
        self, path: str, body: bytes, *, hands_on: bool = False
    ) -> AsyncGenerator[JsonObject, None]:
        for engine, last in self._candidates():
            began = False
            async with self._elsewhere(engine, last=last):
                events = self._clients[engine].stream(path, body, hands_on=not last)
                try:
                    with self._counted(engine):
                        async with aclosing(events):
                            async for event in events:
                                began = True
                                yield event
                    return
                except ModelUnavailable as error:
                    if began and not self._fleet.is_open:
                        raise AnswerLost(error.message, hint=error.hint) from error
                    raise

    @override
    async def aclose(self) -> None:
        for client in self._clients.values():
            await client.aclose()

    def _candidates(self) -> Iterator[tuple[Engine, bool]]:
        order = self._fleet.order()
        end = time.monotonic() + self._endpoint.timeout
        for engine in order:
            yield engine, engine is order[-1] or time.monotonic() > end

    @asynccontextmanager
    async def _elsewhere(self, engine: Engine, *, last: bool) -> AsyncIterator[None]:
        try:
            yield
        except AnswerLost:
            raise
        except _ELSEWHERE as error:
            if last:
                raise
            logger.info("%s: the next engine is asked. %s", engine.address, error.message)

    @contextmanager
    def _counted(self, engine: Engine) -> Iterator[None]:
        start, failure = time.perf_counter(), ""
        with engine.busy() if self._records else nullcontext():
            try:
                yield
            except ModelError as error:
                failure = error.code
                raise
            finally:
                if self._records:
                    self._fleet.on_end(time.perf_counter() - start, engine.address, failure)

    async def _lists(self, *, check: bool) -> list[JsonObject] | None:
        """The cards that every engine which answers has; what they differ in is noted. Raises where none answers."""
        asked = [client.check() if check else client.models() for client in self._clients.values()]
        found = await asyncio.gather(*asked, return_exceptions=True)
        lists: dict[Engine, list[JsonObject]] = {}
        for engine, answer in zip(self._clients, found, strict=True):
            if isinstance(answer, BaseException) and not isinstance(answer, ModelError):
                raise answer
            self.found[engine] = answer.message if isinstance(answer, ModelError) else "answers"
            if isinstance(answer, list):
                lists[engine] = answer
        if not lists:
            failures = [each for each in found if isinstance(each, ModelError)]
            if len(failures) == len(found):
                raise failures[0]
            return None
        common = set.intersection(
            *({str(card["id"]) for card in cards} for cards in lists.values())
        )
        self._note(common, lists)
        return [card for card in next(iter(lists.values())) if card["id"] in common]

    def _note(self, common: set[str], lists: dict[Engine, list[JsonObject]]) -> None:
        more = {
            engine.address: sorted({str(card["id"]) for card in cards} - common)
            for engine, cards in lists.items()
        }
        said = "; ".join(
            f"only {address} has {', '.join(names)}" for address, names in more.items() if names
        )
        if said and said != self._fleet.disagreement:
            logger.warning("Not every engine has the same models: %s.", said)
        self._fleet.disagreement = said
