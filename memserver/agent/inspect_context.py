"""A look at an agent's prompt from outside of a turn; changes nothing."""

from dataclasses import dataclass, replace
from uuid import UUID

from memserver.agent.context import AgentView, PromptParts, as_sent, build_prompt, render_queue
from memserver.agent.dependencies import TurnDependencies
from memserver.agent.turn_tools import TurnTools
from memserver.llm.base import ChatModel
from memserver.messages import Entry, PromptMessage
from memserver.storage import recall
from memserver.storage.missing import no_agent
from memserver.storage.snapshots import read_snapshot


@dataclass(frozen=True, slots=True)
class InspectedContext:
    agent: AgentView
    prompt: PromptParts
    queue: list[Entry]
    model: ChatModel

    async def shown(self) -> list[PromptMessage]:
        largest = self.prompt.budget.largest_counted
        return await render_queue(self.agent, self.queue, largest, self.model)


async def inspect_context(
    deps: TurnDependencies, tenant: str, agent_id: UUID, *, done_only: bool = False
) -> InspectedContext:
    """Put the prompt together as the next step would find it; with `done_only` without what belongs to a turn that still runs.

    Raises:
        NotFound: no such agent.
        ModelError: the model endpoint didn't say how large its window is.
    """
    async with deps.database.tenant(tenant) as tx:
        found = await read_snapshot(tx, agent_id, done_only=done_only)
        if found is None:
            raise no_agent(agent_id)
        snapshot, end = found
        queue = await recall.queue(tx, agent_id, snapshot.state.queue_start, end)
    view = AgentView.of(snapshot, TurnTools(deps.tools, snapshot.grants), deps.limits)
    model = deps.models.get(snapshot.agent.model)
    prompt = await build_prompt(view, model, deps, snapshot.state.token_scale)
    closed = [each for each in queue if each.call is None or not each.call.is_open]
    return InspectedContext(
        replace(view, tools=prompt.tools), prompt, as_sent(closed, model), model
    )
