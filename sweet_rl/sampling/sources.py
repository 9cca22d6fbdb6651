"""Where policies are sampled from: given an adapter, a sampler of it."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from typing_extensions import override

from memserver.errors import SetupError
from memserver.llm.adapters import Adapters, find_adapter, versioned_name
from memserver.openai_http.client import EndpointClient
from memserver.openai_http.endpoint import Endpoint
from sweet_rl.recipe import Recipe
from sweet_rl.resumable import Deadline
from sweet_rl.sampling.endpoint_sampler import EndpointSampler, SpreadSampler
from sweet_rl.sampling.samplers import Sampler
from sweet_rl.sampling.vllm_server import BASE, ServerOptions, VllmServer, vllm_command

PATIENCE = 600
"""Seconds for an answer: a request waits for those before it."""


class SamplingSource(ABC):
    """A base model, and samplers of it with and without adapters."""

    def prepare(self) -> None:  # noqa: B027 - most have nothing to begin
        """Begin what takes long, without waiting for it: samplers will be wanted."""

    def addresses(self) -> Sequence[str] | None:
        """Of the endpoints by which another process can sample: none where it needs none; None: not yet."""
        return ()

    @abstractmethod
    def open(self, adapter: Path | None) -> AbstractAsyncContextManager[Sampler]:
        """A sampler of the base with the adapter of this folder, while a block runs."""


@dataclass(frozen=True)
class EndpointSource(SamplingSource):
    """OpenAI-compatible endpoints that take adapters as vLLM does."""

    running: Sequence[str]  # the addresses of one or more of them (…/v1) with the same base
    model: str = BASE  # their name of the base
    seeded: bool = True  # see `EndpointSampler`

    @override
    def addresses(self) -> Sequence[str]:
        return self.running

    @override
    @asynccontextmanager
    async def open(self, adapter: Path | None) -> AsyncIterator[Sampler]:
        """A sampler over HTTP. An adapter stays loaded: another process may be using it."""
        async with AsyncExitStack() as stack:
            samplers = []
            for address in self.running:
                endpoint = Endpoint(address, "", timeout=PATIENCE, max_retries=5, connections=0)
                client = EndpointClient(endpoint)
                stack.push_async_callback(client.aclose)
                name = self.model if adapter is None else await _load(endpoint, adapter)
                samplers.append(EndpointSampler(client, name, self.seeded))
            yield samplers[0] if len(samplers) == 1 else SpreadSampler(samplers)


@dataclass(frozen=True)
class ServerSource(SamplingSource):
    """vLLM servers of our own, started when they are needed."""

    servers: Sequence[VllmServer]
    deadline: Deadline  # after it they aren't waited for
    seeded: bool = True  # see `EndpointSampler`

    @override
    def prepare(self) -> None:
        for server in self.servers:
            server.begin()

    @override
    def addresses(self) -> Sequence[str] | None:
        found = [server.address_if_ready() for server in self.servers]
        ready = [address for address in found if address is not None]
        return ready if len(ready) == len(found) else None

    @override
    @asynccontextmanager
    async def open(self, adapter: Path | None) -> AsyncIterator[Sampler]:
        self.prepare()
        addresses = [
            await asyncio.to_thread(server.address, self.deadline) for server in self.servers
        ]
        async with EndpointSource(addresses, seeded=self.seeded).open(adapter) as sampler:
            yield sampler


@dataclass(frozen=True)
class TransformersSource(SamplingSource):
    """This process, by transformers: each process samples by itself."""

    base: Path

    @override
    @asynccontextmanager
    async def open(self, adapter: Path | None) -> AsyncIterator[Sampler]:
        from sweet_rl.sampling.transformers_sampler import TransformersSampler  # noqa: PLC0415 - torch is heavy

        sampler = TransformersSampler(self.base, adapter)
        try:
            yield sampler
        finally:
            await sampler.aclose()


class SamplerName(StrEnum):
    AUTO = "auto"
    VLLM = "vllm"
    TRANSFORMERS = "transformers"


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    sampler: SamplerName
    vllm: str | None  # the command of vLLM's API server; None for this Python's
    endpoint: Sequence[str]  # addresses of running ones, instead
    endpoint_model: str  # their name of the base
    gpus: Sequence[str] = ()  # that servers of our own share, as CUDA_VISIBLE_DEVICES names them

    def source(
        self, recipe: Recipe, base: Path, out: Path, deadline: Deadline, stack: ExitStack
    ) -> SamplingSource:
        """The source; `stack` ends its servers, whose logs are in `out`."""
        sampling, command = recipe.sampling, vllm_command(self.vllm)
        if self.endpoint:
            return EndpointSource(self.endpoint, self.endpoint_model, sampling.seeded)
        if self.sampler is SamplerName.TRANSFORMERS or (
            self.sampler is SamplerName.AUTO and command is None
        ):
            return TransformersSource(base)
        if command is None:
            raise SetupError(
                "vLLM isn't installed here.", hint="Name the command of its API server by --vllm."
            )
        rank, more = recipe.rank_of_adapters, sampling.server_options
        options = ServerOptions(command, sampling.window, sampling.cache_gb, rank, more)
        out.mkdir(parents=True, exist_ok=True)
        servers = []
        for number in range(sampling.servers):
            gpu = self.gpus[number % len(self.gpus)] if self.gpus else None
            server = VllmServer(base, out / f"vllm-{number}.log", options, gpu)
            servers.append(stack.enter_context(server))
        for server in servers:
            stack.callback(server.dismiss)  # all of them, before the first is waited for
        return ServerSource(servers, deadline, sampling.seeded)


async def _load(endpoint: Endpoint, adapter: Path) -> str:
    """The name under which the endpoint has an adapter: one for each content."""
    name = versioned_name("policy", find_adapter(str(adapter)), None)
    adapters = Adapters(endpoint)
    try:
        await adapters.load(name, str(adapter))
    finally:
        await adapters.aclose()
    return name
