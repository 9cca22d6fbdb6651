"""A sampler that says what a rule says, and its source, whatever the adapter."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from sweet_rl.sampling.samplers import Sampled, Sampling
from sweet_rl.trajectories import Messages

Rule = Callable[[Messages, int], str]
"""The text for a chat and a seed."""


@dataclass(frozen=True, slots=True)
class ScriptedSampler:
    """Each text has a seed of its own, greedy ones the seed 0. A token is a word; no chat is too long."""

    rule: Rule

    async def sample(
        self, chat: Messages, count: int, sampling: Sampling, seed: int
    ) -> list[Sampled]:
        read = sum(len(message["content"].split()) for message in chat)
        seeds = [seed + number if sampling.temperature else 0 for number in range(count)]
        texts = [
            " ".join(self.rule(chat, each).split(" ")[: sampling.max_tokens]) for each in seeds
        ]
        return [Sampled(text, len(text.split()), read) for text in texts]


@dataclass(frozen=True)
class ScriptedSource:
    rule: Rule

    def prepare(self) -> None: ...

    def addresses(self) -> Sequence[str]:
        return ()

    @asynccontextmanager
    async def open(self, adapter: Path | None) -> AsyncIterator[ScriptedSampler]:
        yield ScriptedSampler(self.rule)
