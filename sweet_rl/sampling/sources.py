"""Where policies are sampled from: given an adapter, a sampler of it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from memserver.llm.adapters import Adapters, find_adapter, versioned_name
from memserver.openai_http.client import Endpoint, EndpointClient
from sweet_rl.deadline import Deadline
from sweet_rl.sampling.endpoint_sampler import EndpointSampler, SpreadSampler
from sweet_rl.sampling.samplers import Rule, Sampler, ScriptedSampler
from sweet_rl.sampling.vllm_server import BASE, VllmServer

PATIENCE = 600
"""Seconds for an answer: a request waits for those before it."""


class SamplingSource(Protocol):
    """A base model, and samplers of it with and without adapters."""

    def prepare(self) -> None:
        """Begin what takes long, without waiting for it: samplers will be wanted."""
        ...

    def addresses(self) -> Sequence[str] | None:
        """Of the endpoints by which another process can sample: none where it needs none; None: not yet.

        Raises:
            SetupError: they can't be started.
        """
        ...

    def open(self, adapter: Path | None) -> AbstractAsyncContextManager[Sampler]:
        """A sampler of the base with this adapter, while a block runs.

        Args:
            adapter: its folder, an absolute path; None for the base alone.
        """
        ...


@dataclass(frozen=True)
class EndpointSource:
    """OpenAI-compatible endpoints that take adapters as vLLM does.

    Attributes:
        running: the addresses of one or more of them (…/v1) with the same base.
        model: their name of the base.
        seeded: see `EndpointSampler`.
        api_key: empty where none is wanted.
    """

    running: Sequence[str]
    model: str = BASE
    seeded: bool = True
    api_key: str = ""

    def prepare(self) -> None:
        """Nothing: they run."""

    def addresses(self) -> Sequence[str]:
        """As they were told."""
        return self.running

    @asynccontextmanager
    async def open(self, adapter: Path | None) -> AsyncIterator[Sampler]:
        """A sampler over HTTP. An adapter stays loaded: another process may be using it."""
        async with AsyncExitStack() as stack:
            samplers = []
            for address in self.running:
                endpoint = Endpoint(
                    address, self.api_key, timeout=PATIENCE, max_retries=5, connections=0
                )
                client = EndpointClient(endpoint)
                stack.push_async_callback(client.aclose)
                name = self.model if adapter is None else await _loaded(endpoint, adapter)
                samplers.append(EndpointSampler(client, name, self.seeded))
            yield samplers[0] if len(samplers) == 1 else SpreadSampler(samplers)


@dataclass(frozen=True)
class ServerSource:
    """vLLM servers of our own.

    Attributes:
        servers: started when they are needed.
        deadline: after it they aren't waited for.
        seeded: see `EndpointSampler`.
    """

    servers: Sequence[VllmServer]
    deadline: Deadline
    seeded: bool = True

    def prepare(self) -> None:
        """Begin to start them."""
        for server in self.servers:
            server.begin()

    def addresses(self) -> Sequence[str] | None:
        """Once all of them answer."""
        found = [server.address_if_ready() for server in self.servers]
        ready = [address for address in found if address is not None]
        return ready if len(ready) == len(found) else None

    @asynccontextmanager
    async def open(self, adapter: Path | None) -> AsyncIterator[Sampler]:
        """A sampler over HTTP."""
        self.prepare()
        addresses = [
            await asyncio.to_thread(server.address, self.deadline) for server in self.servers
        ]
        async with EndpointSource(addresses, seeded=self.seeded).open(adapter) as sampler:
            yield sampler


async def _loaded(endpoint: Endpoint, adapter: Path) -> str:
    """The name under which the endpoint has an adapter: one for each content."""
    name = versioned_name("policy", find_adapter(str(adapter)), None)
    adapters = Adapters(endpoint)
    try:
        await adapters.load(name, str(adapter))
    finally:
        await adapters.aclose()
    return name


@dataclass(frozen=True)
class TransformersSource:
    """This process, by transformers."""

    base: Path

    def prepare(self) -> None:
        """Nothing: a model is loaded when it is opened."""

    def addresses(self) -> Sequence[str]:
        """None: each process samples by itself."""
        return ()

    @asynccontextmanager
    async def open(self, adapter: Path | None) -> AsyncIterator[Sampler]:
        """A sampler in this process."""
        from sweet_rl.sampling.transformers_sampler import (  # noqa: PLC0415 - torch is heavy
            TransformersSampler,
        )

        sampler = TransformersSampler(self.base, adapter)
        try:
            yield sampler
        finally:
            await sampler.aclose()


@dataclass(frozen=True)
class ScriptedSource:
    """A rule, whatever the adapter."""

    rule: Rule

    def prepare(self) -> None:
        """Nothing."""

    def addresses(self) -> Sequence[str]:
        """None."""
        return ()

    @asynccontextmanager
    async def open(
        self,
        adapter: Path | None,  # noqa: ARG002 - the protocol's
    ) -> AsyncIterator[Sampler]:
        """A scripted sampler."""
        yield ScriptedSampler(self.rule)
