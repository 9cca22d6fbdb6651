"""What a policy's texts come from. A sampler knows one model and chats; it knows no tasks."""

import zlib
from dataclasses import dataclass
from typing import Protocol

from sweet_rl.trajectories import Messages


@dataclass(frozen=True, slots=True)
class Sampling:
    temperature: float = (
        1.0  # 1 draws from the model as it is, 0 takes the likeliest token each time
    )
    max_tokens: int = 256  # of one text, its end included


GREEDY = Sampling(temperature=0)


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

        Raises:
            ContextOverflow: the chat and max_tokens are more than the model's window.
            ModelError: another failure of an endpoint.
        """
        ...


def seed_of(*parts: object) -> int:
    """A seed, 0 to 2^31 - 1, from whatever tells one draw from another."""
    return zlib.crc32(" ".join(map(str, parts)).encode()) & 0x7FFF_FFFF
