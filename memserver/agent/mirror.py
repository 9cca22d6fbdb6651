"""A look at an agent's prompt from outside of a turn; changes nothing."""

from dataclasses import dataclass, replace
from uuid import UUID
from zoneinfo import ZoneInfo

from memserver.agent.context import Frame, Mind, as_sent, frame, render_queue
from memserver.agent.faculties import Faculties, form_of, layout_of
from memserver.agent.options import AgentOptions
from memserver.agent.protocols import tool_specs
from memserver.llm.base import ChatModel
from memserver.messages import Message, PromptMessage
from memserver.storage import leases, recall
from memserver.storage.missing import no_agent
from memserver.storage.tools import grants_from_row


@dataclass(frozen=True, slots=True)
class Context:
    """What the next prompt is made of."""

    mind: Mind
    frame: Frame
    queue: list[Message]
    summary_failure: str | None


@dataclass(frozen=True, slots=True)
class View:
    """What a prompt would hold now."""

    frame: Frame
    queue: list[Message]
    shown: list[PromptMessage]
    summary_failure: str | None
    model: ChatModel


async def look(faculties: Faculties, tenant: str, agent_id: UUID) -> View:
    """Put the prompt together as the next step would find it.

    Raises:
        NotFound: no such agent.
        ModelError: the model endpoint didn't say how large its window is.
    """
    seen = await read_context(faculties, tenant, agent_id)
    model = faculties.models.get(seen.mind.agent.model)
    largest = seen.frame.budget.largest_counted
    shown = await render_queue(seen.mind, seen.queue, largest, model)
    return View(seen.frame, seen.queue, shown, seen.summary_failure, model)


async def read_context(
    faculties: Faculties, tenant: str, agent_id: UUID, *, done_only: bool = False
) -> Context:
    """Read and count what the next prompt is made of.

    Args:
        faculties: of the server.
        tenant: whose agent.
        agent_id: which.
        done_only: leave out what belongs to a turn that still runs.

    Raises:
        NotFound: no such agent.
        ModelError: the model endpoint didn't say how large its window is.
    """
    async with faculties.database.tenant(tenant) as tx:
        row = await recall.context_row(tx, agent_id)
        if row is None:
            raise no_agent(agent_id)
        end = row["done_end" if done_only else "queue_end"]
        found = await recall.queue(tx, agent_id, row["queue_start"], end)
    queue = [each for each in found if each.call is None or not each.call.is_open]
    agent = leases.agent_from_row(row)
    options = AgentOptions.model_validate(agent.options)
    sections = leases.sections_from_row(row)
    mind = Mind(
        agent=agent,
        state=leases.state_from_row(row),
        sections=sections,
        summary=leases.summary_from_row(row),
        tools=tool_specs(
            faculties.tools.toolset(grants_from_row(row)),
            sections,
            options.protocol,
        ),
        zone=ZoneInfo(options.timezone),
        protocol=options.protocol,
        form=form_of(options, faculties.limits),
    )
    model = faculties.models.get(agent.model)
    layout = await layout_of(model, options, faculties.limits)
    shape = await frame(mind, model, faculties.prompts, layout, mind.state.token_scale)
    mind = replace(mind, tools=shape.tools)
    return Context(mind, shape, as_sent(queue, model), (row["summary"] or {}).get("failure"))
