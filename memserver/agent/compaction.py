"""Makes room in the queue: evicts its oldest half and folds that into the recursive summary.

New start of the queue and new summary are committed together, or neither is.
"""

from dataclasses import dataclass

from memserver.agent.context import Frame
from memserver.agent.deadline import Deadline
from memserver.agent.events import Compacted
from memserver.errors import ContextOverflow
from memserver.memory.queue import Budget, entries_to_evict
from memserver.memory.summary import Summarizer
from memserver.messages import Message
from memserver.storage import leases
from memserver.storage.database import Database
from memserver.storage.leases import Eviction, Lease

SUMMARY_SHARE = 6
"""The summary may take a sixth of the prompt."""
MOST_SUMMARY_TOKENS = 1024
LEAST_ROOM = 128
"""Tokens that the queue needs, so that one message can be shown at least in part."""


@dataclass(frozen=True, slots=True)
class Compacting:
    """What a compaction works on."""

    lease: Lease
    frame: Frame
    summary: str
    queue_start: int
    deadline: Deadline


class Compactor:
    """Evicts and summarises."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def evict(
        self, task: Compacting, queue: list[Message], summarizer: Summarizer
    ) -> tuple[int, Compacted]:
        """Evict once, at the point where the queue first overflowed.

        Returns:
            How many entries of `queue` are gone, and what to tell of it.

        Raises:
            LeaseLost: another worker serves the agent; nothing was changed.
            TurnTimeout: the summary took too long; nothing was changed.
        """
        budget = task.frame.budget
        count = entries_to_evict(queue[: overflow_at(queue, budget)], budget)
        evicted = queue[:count]
        limit = max(32, min(budget.capacity // SUMMARY_SHARE, MOST_SUMMARY_TOKENS))
        async with task.deadline.cutting():
            summary = await summarizer.fold(task.summary, evicted, limit)
        eviction = Eviction(
            old_start=task.queue_start,
            new_start=queue[count].position,
            summary=summary.text,
            tokens=summary.tokens,
            evicted=count,
            method=summary.method,
            failure=summary.failure,
        )
        async with self._database.tenant(task.lease.tenant) as tx:
            await leases.evict(tx, task.lease, eviction)
        return count, Compacted(count, summary.method, summary.failure)


def overflow_at(queue: list[Message], budget: Budget) -> int:
    """How many entries had come when the queue first was too long; all, if it never was."""
    used = budget.fixed
    for index, message in enumerate(queue, start=1):
        used += budget.shown(message)
        if used > budget.capacity and index > 1:
            return index
    return len(queue)


def check_room(budget: Budget) -> None:
    """Check that the fixed parts leave room for a queue at all.

    Raises:
        ContextOverflow: they don't; no eviction could help.
    """
    if budget.room < LEAST_ROOM:
        raise ContextOverflow(
            f"Instructions, tools, working context and summary take {budget.fixed} of the "
            f"{budget.capacity} tokens that a prompt may have.",
            hint="Take a larger context_window, a smaller max_output_tokens, or shorten the "
            "working context or the system prompt.",
        )
