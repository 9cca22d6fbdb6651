"""Makes room in the queue: evicts its oldest half and folds that into the recursive summary.

New start of the queue and new summary are committed together, or neither is. Normally this is a job that
runs after a turn, without the lease: it summarises what it has read, and commits only if the queue still
starts where it did. A turn whose prompt would not fit evicts first, itself.
"""

from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID

from memserver.agent.context import AgentView
from memserver.agent.deadline import Deadline
from memserver.agent.dependencies import TurnDependencies
from memserver.agent.inspect_context import inspect_context
from memserver.errors import ContextOverflow, NotFound
from memserver.memory.queue import Budget, entries_to_evict
from memserver.memory.summary import Summarizer, Summary
from memserver.messages import Entry
from memserver.openai_http.fleet import pinned_to
from memserver.storage import turn_writes
from memserver.storage.jobs import Job, JobRun
from memserver.storage.leases import Lease
from memserver.storage.turn_writes import Eviction
from memserver.wire.events import MemoryChanged

COMPACT = "compact"
"""The job's name."""
SUMMARY_SHARE = 6
"""The summary may take a sixth of the prompt."""
MOST_SUMMARY_TOKENS = 1024
LEAST_ROOM = 128
"""Tokens that the queue needs, so that one message can be shown at least in part."""


async def evict(
    deps: TurnDependencies,
    view: AgentView,
    queue: Sequence[Entry],
    budget: Budget,
    deadline: Deadline,
    lease: Lease | None = None,
) -> MemoryChanged | None:
    """Evict once, at the point where the queue, of two entries at least, first overflowed.

    Returns the event; None if nothing was changed, since the queue is another one by now. `lease`: the turn's that evicts,
    if one does.

    Raises:
        LeaseLost: another worker serves the agent; nothing was changed.
        TurnTimeout: the summary took too long; nothing was changed.
    """
    agent = view.snapshot.agent
    count = entries_to_evict(queue[: overflow_at(queue, budget)], budget)
    async with deadline.cutting():
        summary = await fold(deps, view, budget, view.snapshot.summary, queue[:count])
    eviction = Eviction(
        history_version=view.snapshot.state.history_version,
        old_start=view.snapshot.state.queue_start,
        new_start=queue[count].position,
        summary=summary.text,
        tokens=summary.tokens,
        evicted=count,
        method=summary.method,
        failure=summary.failure,
    )
    async with deps.database.tenant(agent.tenant) as tx:
        done = await turn_writes.evict(tx, agent.id, eviction, lease)
    if not done:
        return None
    return MemoryChanged(evicted=count, summary=summary.method, failure=summary.failure)


async def fold(
    deps: TurnDependencies, view: AgentView, budget: Budget, old: str, messages: Sequence[Entry]
) -> Summary:
    """A summary of an old summary and of messages, by the method that this agent has."""
    agent = view.snapshot.agent
    summarizer = Summarizer(
        deps.models.get(deps.summary_model or agent.model, agent.tenant),
        deps.prompts,
        view.zone,
        scale=None if deps.summary_model else budget.scale,
        method=deps.summary_method,
    )
    with pinned_to(agent.id):
        return await summarizer.fold(old, messages, summary_limit(budget))


async def compact(deps: TurnDependencies, job: JobRun) -> None:
    """Evict until the queue is short enough; does nothing if it is, or if the agent is gone."""
    agent_id = UUID(job.args["agent_id"])
    with suppress(NotFound):
        while await _evict_if_needed(deps, job.tenant, agent_id):
            pass


async def _evict_if_needed(deps: TurnDependencies, tenant: str, agent_id: UUID) -> bool:
    # What a turn that runs has in hand is left to that turn.
    seen = await inspect_context(deps, tenant, agent_id, done_only=True)
    budget = seen.prompt.budget
    if len(seen.queue) < 2 or budget.room < LEAST_ROOM or not budget.over_target(seen.queue):
        return False
    deadline = Deadline(deps.limits.turn_timeout)
    return await evict(deps, seen.agent, seen.queue, budget, deadline) is not None


def compaction_job(tenant: str, agent_id: UUID) -> Job:
    return Job(COMPACT, tenant, {"agent_id": str(agent_id)}, key=str(agent_id))


def summary_limit(budget: Budget) -> int:
    return max(32, min(budget.capacity // SUMMARY_SHARE, MOST_SUMMARY_TOKENS))


def overflow_at(queue: Sequence[Entry], budget: Budget) -> int:
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
