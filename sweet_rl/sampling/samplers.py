"""What a policy's texts come from: the protocol, and a scripted sampler for tests and dry runs.

A sampler knows one model and chats; it knows no tasks. The real ones are `endpoint_sampler` (any
OpenAI-compatible endpoint, vLLM first) and `transformers_sampler` (in this process).
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from sweet_rl.trajectories import Messages


@dataclass(frozen=True, slots=True)
class Sampling:
    # 1 draws from the model as it is, 0 takes the likeliest token each time
    temperature: float = 1.0
    max_tokens: int = 256  # of one text, its end included


GREEDY = Sampling(temperature=0)


class SamplerName(StrEnum):
    AUTO = "auto"
    VLLM = "vllm"
    TRANSFORMERS = "transformers"


@dataclass(frozen=True, slots=True)
class Sampled:
    text: str  # without the token that ends it
    tokens: int  # that were generated
    read: int = 0  # tokens of the prompt


class Sampler(Protocol):
    """One model, with or without an adapter. Many chats may be asked for at a time."""

    async def sample(
        self, chat: Messages, count: int, sampling: Sampling, seed: int
    ) -> list[Sampled]:
        """Draw the agent's next message so many times.

        Args:
            chat: ends with a user's message.
            count: how many texts.
            sampling: how they are drawn.
            seed: the same one gives the same texts, as far as the model computes the same each time.
        """
        ...

    async def aclose(self) -> None: ...


def seed_of(*parts: object) -> int:
    return zlib.crc32(" ".join(map(str, parts)).encode()) & 0x7FFF_FFFF


Rule = Callable[[Messages, int], str]
"""The text for a chat and a seed."""


@dataclass(frozen=True, slots=True)
class ScriptedSampler:
    """Says what a rule says; a token is a word. Each text has a seed of its own, greedy ones the seed 0."""

    rule: Rule

    async def sample(
        self, chat: Messages, count: int, sampling: Sampling, seed: int
    ) -> list[Sampled]:
        read = sum(len(message["content"].split()) for message in chat)
        seeds = [seed + number if sampling.temperature else 0 for number in range(count)]
        texts = [" ".join(self._words(chat, each)[: sampling.max_tokens]) for each in seeds]
        return [Sampled(text, len(text.split()), read) for text in texts]

    def _words(self, chat: Messages, seed: int) -> list[str]:
        return self.rule(chat, seed).split(" ")

    async def aclose(self) -> None: ...
