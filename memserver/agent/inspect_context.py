"""A look at an agent's prompt from outside of a turn; changes nothing."""

from dataclasses import dataclass, replace
from uuid import UUID
from zoneinfo import ZoneInfo

from memserver.agent.context import AgentSnapshot, PromptParts, as_sent, build_prompt, render_queue
from memserver.agent.dependencies import TurnDependencies, form_of, layout_of
from memserver.agent.options import AgentOptions
from memserver.agent.reply_modes import tool_specs
from memserver.llm.base import ChatModel
from memserver.messages import Message, PromptMessage
from memserver.storage import leases, recall
from memserver.storage.missing import no_agent
from memserver.storage.tools import grants_from_row


@dataclass(frozen=True, slots=True)
class Context:
    """What the next prompt is made of."""

    snapshot: AgentSnapshot
    prompt: PromptParts
    queue: list[Message]
    summary_failure: str | None


@dataclass(frozen=True, slots=True)
class ContextView:
    """What a prompt would hold now."""

    prompt: PromptParts
    queue: list[Message]
    shown: list[PromptMessage]
    summary_failure: str | None
    model: ChatModel


async def inspect_context(deps: TurnDependencies, tenant: str, agent_id: UUID) -> ContextView:
    """Put the prompt together as the next step would find it.

    Raises:
        NotFound: no such agent.
        ModelError: the model endpoint didn't say how large its window is.
    """
    seen = await read_context(deps, tenant, agent_id)
    model = deps.models.get(seen.snapshot.agent.model)
    largest = seen.prompt.budget.largest_counted
    shown = await render_queue(seen.snapshot, seen.queue, largest, model)
    return ContextView(seen.prompt, seen.queue, shown, seen.summary_failure, model)


async def read_context(
    deps: TurnDependencies, tenant: str, agent_id: UUID, *, done_only: bool = False
) -> Context:
    """Read and count what the next prompt is made of.

    Args:
        deps: of the server.
        tenant: whose agent.
        agent_id: which.
        done_only: leave out what belongs to a turn that still runs.

    Raises:
        NotFound: no such agent.
        ModelError: the model endpoint didn't say how large its window is.
    """
    async with deps.database.tenant(tenant) as tx:
        row = await recall.context_row(tx, agent_id)
        if row is None:
            raise no_agent(agent_id)
        end = row["done_end" if done_only else "queue_end"]
        found = await recall.queue(tx, agent_id, row["queue_start"], end)
    queue = [each for each in found if each.call is None or not each.call.is_open]
    agent = leases.agent_from_row(row)
    options = AgentOptions.model_validate(agent.options)
    sections = leases.sections_from_row(row)
    snapshot = AgentSnapshot(
        agent=agent,
        state=leases.state_from_row(row),
        sections=sections,
        summary=leases.summary_from_row(row),
        tools=tool_specs(
            deps.tools.toolset(grants_from_row(row)),
            sections,
            options.protocol,
        ),
        zone=ZoneInfo(options.timezone),
        protocol=options.protocol,
        form=form_of(options, deps.limits),
    )
    model = deps.models.get(agent.model)
    layout = await layout_of(model, options, deps.limits)
    prompt = await build_prompt(snapshot, model, deps.prompts, layout, snapshot.state.token_scale)
    snapshot = replace(snapshot, tools=prompt.tools)
    return Context(snapshot, prompt, as_sent(queue, model), (row["summary"] or {}).get("failure"))
