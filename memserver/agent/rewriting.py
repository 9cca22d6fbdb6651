"""Writes a summary again that had taken up what was deleted: from the last summary that had not, and what is left."""

from contextlib import suppress
from uuid import UUID

from memserver.agent.compaction import fold
from memserver.agent.dependencies import TurnDependencies
from memserver.agent.inspect_context import inspect_context
from memserver.errors import NotFound
from memserver.storage import erasure, recall
from memserver.storage.erasure import NOTE, Rewritten
from memserver.storage.jobs import JobRun
from memserver.storage.rows import PageQuery

MOST_MESSAGES = 1000
"""Of a history that is read again, the newest."""


async def rewrite(deps: TurnDependencies, job: JobRun) -> None:
    """Write it; does nothing if the summary holds, or if the agent is gone."""
    agent_id = UUID(job.args["agent_id"])
    with suppress(NotFound):
        while not await _is_written(deps, job.tenant, agent_id):
            pass


async def _is_written(deps: TurnDependencies, tenant: str, agent_id: UUID) -> bool:
    """Whether the summary holds now; else something has changed while it was written."""
    async with deps.database.tenant(tenant) as tx:
        outdated = await erasure.find_outdated(tx, agent_id)
        if outdated is None:
            return True
        newest = PageQuery(MOST_MESSAGES, outdated.until, descending=True)
        page = await recall.history_page(tx, agent_id, newest)
    left = [message for message in reversed(page) if message.position >= outdated.since]
    seen = await inspect_context(deps, tenant, agent_id, done_only=True)
    summary = await fold(deps, seen.agent, seen.prompt.budget, outdated.text, left)
    text = summary.text if NOTE in summary.text else f"{summary.text}\n\n{NOTE}".strip()
    new = Rewritten(text, summary.tokens, summary.method, summary.failure)
    async with deps.database.tenant(tenant) as tx:
        return await erasure.replace_outdated(tx, agent_id, outdated, new)
