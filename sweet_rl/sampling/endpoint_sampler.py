"""Samples from an OpenAI-compatible endpoint: chat completions with `n` and `seed`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from memserver.errors import ModelUnavailable
from memserver.messages import JsonObject
from memserver.openai_http.client import EndpointClient
from sweet_rl.sampling.samplers import Sampled, Sampler, Sampling, seed_of
from sweet_rl.trajectories import Messages


@dataclass(frozen=True, slots=True)
class EndpointSampler:
    client: EndpointClient  # of the endpoint; its maker closes it
    model: str  # its name there; each version of an adapter has a name of its own
    seeded: bool = True  # send seeds. vLLM draws faster without, and then no two runs are alike.

    async def sample(
        self, chat: Messages, count: int, sampling: Sampling, seed: int
    ) -> list[Sampled]:
        """As the protocol says. A greedy text is generated once, however often it is asked for."""
        drawn = count if sampling.temperature else 1
        body: JsonObject = {
            "model": self.model,
            "messages": list(chat),
            "n": drawn,
            "temperature": sampling.temperature,
            "max_tokens": sampling.max_tokens,
        }
        if self.seeded:
            body["seed"] = seed
        answer = await self.client.post("/chat/completions", json.dumps(body).encode())
        try:
            found = _read(answer)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise ModelUnavailable("The endpoint's answer has no texts in it.") from error
        if len(found) != drawn:
            raise ModelUnavailable(f"The endpoint gave {len(found)} texts instead of {drawn}.")
        return found * (count // drawn)


@dataclass(frozen=True, slots=True)
class SpreadSampler:
    """Several samplers of the same policy. All of one collaboration goes to one, which has its beginning cached."""

    samplers: Sequence[Sampler]

    async def sample(
        self, chat: Messages, count: int, sampling: Sampling, seed: int
    ) -> list[Sampled]:
        first = next(message["content"] for message in chat if message["role"] == "user")
        chosen = self.samplers[seed_of(first) % len(self.samplers)]
        return await chosen.sample(chat, count, sampling, seed)

    async def aclose(self) -> None: ...


def _read(answer: JsonObject) -> list[Sampled]:
    usage = answer.get("usage") or {}
    choices = sorted(answer["choices"], key=lambda choice: int(choice.get("index", 0)))
    together = int(usage.get("completion_tokens") or 0)
    read = int(usage.get("prompt_tokens") or 0)
    return [
        Sampled(choice["message"].get("content") or "", together // len(choices), read)
        for choice in choices
    ]
