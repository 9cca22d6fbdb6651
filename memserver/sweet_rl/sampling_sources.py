"""Where policies are sampled from: given an adapter, a sampler of it."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from memserver.endpoint import Endpoint, EndpointClient
from memserver.llm.adapters import Adapters, find_adapter, versioned_name
from memserver.sweet_rl.endpoint_sampler import EndpointSampler
from memserver.sweet_rl.samplers import Rule, Sampler, ScriptedSampler
from memserver.sweet_rl.vllm_server import BASE

PATIENCE = 600
"""Seconds for an answer: a request waits for those before it."""


class SamplingSource(Protocol):
    """A base model, and samplers of it with and without adapters."""

    def open(
        self, adapter: Path | None, *, logprobs: bool = False
    ) -> AbstractAsyncContextManager[Sampler]:
        """A sampler of the base with this adapter, while a block runs.

        Args:
            adapter: its folder, an absolute path; None for the base alone.
            logprobs: tell log-probabilities, too.
        """
        ...


@dataclass(frozen=True)
class EndpointSource:
    """An OpenAI-compatible endpoint that takes adapters as vLLM does.

    Attributes:
        address: gives the endpoint's address (…/v1), and may start it first.
        model: its name of the base.
        seeded: see `EndpointSampler`.
        api_key: empty where none is wanted.
    """

    address: Callable[[], str]
    model: str = BASE
    seeded: bool = True
    api_key: str = ""

    @asynccontextmanager
    async def open(self, adapter: Path | None, *, logprobs: bool = False) -> AsyncIterator[Sampler]:
        """A sampler over HTTP. An adapter stays loaded: another process may be using it."""
        endpoint = Endpoint(
            self.address(), self.api_key, timeout=PATIENCE, max_retries=5, connections=0
        )
        client = EndpointClient(endpoint)
        try:
            name = self.model if adapter is None else await _loaded(endpoint, adapter)
            yield EndpointSampler(client, name, logprobs, self.seeded)
        finally:
            await client.aclose()


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

    @asynccontextmanager
    async def open(
        self,
        adapter: Path | None,
        *,
        logprobs: bool = False,  # noqa: ARG002 - they are always told
    ) -> AsyncIterator[Sampler]:
        """A sampler in this process."""
        from memserver.sweet_rl.transformers_sampler import (  # noqa: PLC0415 - torch is heavy
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

    @asynccontextmanager
    async def open(
        self,
        adapter: Path | None,  # noqa: ARG002 - the protocol's
        *,
        logprobs: bool = False,  # noqa: ARG002
    ) -> AsyncIterator[Sampler]:
        """A scripted sampler."""
        yield ScriptedSampler(self.rule)
