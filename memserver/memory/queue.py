"""The FIFO queue: what fits, when to warn, what to evict. Pure arithmetic on token counts.

A message and the call it made, result included, are one entry: an eviction can't split them. Counts
are stored as our counter gave them; a budget is in the model's own tokens, by a scale that
`memory.scale` learns.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from memserver.messages import Entry


@dataclass(frozen=True, slots=True)
class Mark:
    """How full a prompt is: both the share of the prompt that is taken, and that of the queue's room.

    Where instructions and tools take most of a small window, the prompt is nearly full before anything was said.
    """

    of_prompt: float
    of_room: float


WARN_AT = Mark(0.7, 0.5)
COMPACT_AT = Mark(0.9, 0.8)
"""From here on a queue is made shorter in the background, so that the next message finds room."""
EVICT_SHARE = 0.5
LEAST_OUTPUT, LEAST_QUEUE = 256, 384
"""Tokens that output and queue have, where a small window has hardly room for both."""
LONG = 256
LEAST_OF_LONG = 0.85
"""A scale below this comes from many short messages, around which templates put less than is counted. A message
of more than 256 tokens is no such one."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How many tokens the prompt may have."""

    window: int  # what the model can see, prompt and output together
    wanted: int
    # Of the prompt's parts before the queue: instructions, tools, working context, summary
    fixed: int
    scale: float = 1.0  # the model's tokens for each one that we counted
    further: int = 0  # tokens of output that the model has room for outside this window

    @property
    def reserved(self) -> int:
        """For the output: less than is wanted where the queue would have hardly any room."""
        left = self.window - self.fixed - LEAST_QUEUE
        return max(min(self.wanted, LEAST_OUTPUT), min(self.wanted, left))

    @property
    def capacity(self) -> int:
        return self.window - self.reserved

    @property
    def room(self) -> int:
        return max(0, self.capacity - self.fixed)

    @property
    def largest(self) -> int:
        """Tokens that one message may have in the prompt; a longer one is shortened."""
        return self.room // 2

    @property
    def largest_counted(self) -> int:
        """The same in tokens as we count them."""
        return int(self.largest / max(self.scale, LEAST_OF_LONG))

    def shown(self, message: Entry) -> int:
        return min(self._tokens(message), self.largest)

    def used(self, queue: Sequence[Entry]) -> int:
        # No calls for each message that can be spared: this is needed several times in each step.
        largest, scale, of_long = self.largest, self.scale, max(self.scale, LEAST_OF_LONG)
        used = self.fixed
        for each in queue:
            size = math.ceil(each.tokens * (scale if each.tokens <= LONG else of_long))
            used += size if size < largest else largest
        return used

    def fits(self, queue: Sequence[Entry]) -> bool:
        return self.used(queue) <= self.capacity

    def under_pressure(self, queue: Sequence[Entry]) -> bool:
        """Whether the agent should save what matters before it is evicted."""
        return self._reaches(WARN_AT, queue)

    def over_target(self, queue: Sequence[Entry]) -> bool:
        """Whether the next message may find no room."""
        return self._reaches(COMPACT_AT, queue)

    def output(self, queue: Sequence[Entry]) -> int:
        free = self.window - self.used(queue) - self.reserved
        return self.reserved + max(0, min(self.further, free))

    def with_scale(self, scale: float) -> "Budget":
        return replace(self, fixed=scale_up(self.fixed, scale / self.scale), scale=scale)

    def _tokens(self, message: Entry) -> int:
        scale = self.scale if message.tokens <= LONG else max(self.scale, LEAST_OF_LONG)
        return scale_up(message.tokens, scale)

    def _reaches(self, mark: Mark, queue: Sequence[Entry]) -> bool:
        used = self.used(queue)
        return (
            used >= mark.of_prompt * self.capacity and used - self.fixed >= mark.of_room * self.room
        )


def scale_up(counted: int, scale: float) -> int:
    """The model's tokens for a number that we counted, rounded up."""
    return math.ceil(counted * scale)


def entries_to_evict(queue: Sequence[Entry], budget: Budget) -> int:
    """How many of the oldest entries go: half of the queue's tokens, but never the newest entry."""
    sizes = [budget.shown(message) for message in queue]
    goal = min(sum(sizes), budget.room) * EVICT_SHARE
    evicted = 0
    for count, size in enumerate(sizes[:-1], start=1):
        evicted += size
        if evicted >= goal:
            return count
    return max(0, len(queue) - 1)
