"""The FIFO queue: what fits, when to warn, what to evict. Pure arithmetic on token counts.

A message and the call it made, result included, are one entry: an eviction can't split them. Counts
are stored as our counter gave them; a budget is in the model's own tokens, by a scale that
`memory.scale` learns.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from memserver.messages import Message

WARN_AT = 0.7
COMPACT_AT = 0.9
"""From here on a queue is made shorter behind the user's back, so that the next message finds room."""
EVICT_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Budget:
    """How many tokens the prompt may have.

    Attributes:
        window: what the model can see, prompt and output together.
        reserved: for the output.
        fixed: of the prompt's parts before the queue: instructions, tools, working context, summary.
        scale: the model's tokens for each one that we counted.
    """

    window: int
    reserved: int
    fixed: int
    scale: float = 1.0

    @property
    def capacity(self) -> int:
        """Tokens that a prompt may have."""
        return self.window - self.reserved

    @property
    def room(self) -> int:
        """Tokens that the queue may have."""
        return max(0, self.capacity - self.fixed)

    @property
    def largest(self) -> int:
        """Tokens that one message may show; a longer one is shown shortened."""
        return self.room // 2

    @property
    def largest_counted(self) -> int:
        """The same in tokens as we count them."""
        return int(self.largest / self.scale)

    def shown(self, message: Message) -> int:
        """Tokens of a message as the prompt shows it."""
        return min(scaled(message.tokens, self.scale), self.largest)

    def used(self, queue: Sequence[Message]) -> int:
        """Tokens of the whole prompt with this queue."""
        largest, scale = self.largest, self.scale  # once: this is asked several times in each step
        return self.fixed + sum(min(scaled(each.tokens, scale), largest) for each in queue)

    def fits(self, queue: Sequence[Message]) -> bool:
        """Whether the prompt with this queue leaves the output its room."""
        return self.used(queue) <= self.capacity

    def under_pressure(self, queue: Sequence[Message]) -> bool:
        """Whether the agent should save what matters before it is evicted."""
        return self.used(queue) >= WARN_AT * self.capacity

    def over_target(self, queue: Sequence[Message]) -> bool:
        """Whether the next message may find no room."""
        return self.used(queue) >= COMPACT_AT * self.capacity


def scaled(counted: int, scale: float) -> int:
    """The model's tokens for a number that we counted, rounded up."""
    return math.ceil(counted * scale)


def entries_to_evict(queue: Sequence[Message], budget: Budget) -> int:
    """How many of the oldest entries go: half of the queue's tokens, but never the newest entry."""
    sizes = [budget.shown(message) for message in queue]
    goal = min(sum(sizes), budget.room) * EVICT_SHARE
    evicted = 0
    for count, size in enumerate(sizes[:-1], start=1):
        evicted += size
        if evicted >= goal:
            return count
    return max(0, len(queue) - 1)
