"""Where policies are sampled, as the command line wishes it: endpoints, servers of our own, or this process."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from memserver.errors import SetupError
from sweet_rl.deadline import Deadline
from sweet_rl.recipe import Recipe
from sweet_rl.sampling.samplers import SamplerName
from sweet_rl.sampling.sources import (
    EndpointSource,
    SamplingSource,
    ServerSource,
    TransformersSource,
)
from sweet_rl.sampling.vllm_server import ServerOptions, VllmServer, vllm_command


@dataclass(frozen=True, slots=True)
class SamplingWishes:
    sampler: SamplerName  # see SamplerName
    vllm: str | None  # the command of vLLM's API server; None for this Python's
    endpoint: Sequence[str]  # addresses of running ones, instead
    endpoint_model: str  # their name of the base
    # that servers of our own share, as CUDA_VISIBLE_DEVICES names them; empty leaves that to vLLM
    gpus: Sequence[str] = ()

    def source(
        self, recipe: Recipe, base: Path, out: Path, deadline: Deadline, stack: ExitStack
    ) -> SamplingSource:
        """The source."""
        sampling = recipe.sampling
        if self.endpoint:
            return EndpointSource(self.endpoint, self.endpoint_model, sampling.seeded)
        command = vllm_command(self.vllm)
        if self.sampler is SamplerName.TRANSFORMERS or (
            self.sampler is SamplerName.AUTO and command is None
        ):
            return TransformersSource(base)
        if command is None:
            raise SetupError(
                "vLLM isn't installed here.", hint="Name the command of its API server by --vllm."
            )
        options = ServerOptions(
            command,
            sampling.window,
            sampling.cache_gb,
            recipe.rank_of_adapters,
            sampling.server_options,
        )
        out.mkdir(parents=True, exist_ok=True)
        servers = [
            stack.enter_context(
                VllmServer(base, out / f"vllm-{number}.log", options, self._gpu(number))
            )
            for number in range(sampling.servers)
        ]
        for server in servers:
            stack.callback(server.dismiss)  # all of them, before the first is waited for
        return ServerSource(servers, deadline, sampling.seeded)

    def _gpu(self, number: int) -> str | None:
        return self.gpus[number % len(self.gpus)] if self.gpus else None
