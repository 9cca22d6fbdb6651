"""A look at an agent's prompt from outside of a turn; changes nothing."""

from dataclasses import dataclass
from uuid import UUID
from zoneinfo import ZoneInfo

from memserver.agent.context import Frame, Mind, frame, render_queue
from memserver.agent.faculties import Faculties, layout_of
from memserver.agent.options import AgentOptions
from memserver.messages import Message, PromptMessage
from memserver.storage import leases, recall
from memserver.storage.agents import no_agent


@dataclass(frozen=True, slots=True)
class View:
    """What a prompt would hold now."""

    frame: Frame
    queue: list[Message]
    shown: list[PromptMessage]
    summary_failure: str | None


async def look(faculties: Faculties, tenant: str, agent_id: UUID) -> View:
    """Put the prompt together as the next step would find it.

    Raises:
        NotFound: no such agent.
        ModelError: the model endpoint didn't say how large its window is.
    """
    async with faculties.database.tenant(tenant) as tx:
        row = await recall.context_row(tx, agent_id)
        if row is None:
            raise no_agent(agent_id)
        queue = await recall.queue(tx, agent_id, row["queue_start"], row["queue_end"])
    agent = leases.agent_from_row(row)
    options = AgentOptions.model_validate(agent.options)
    sections = leases.sections_from_row(row)
    mind = Mind(
        agent=agent,
        state=leases.state_from_row(row),
        sections=sections,
        summary=leases.summary_from_row(row),
        tools=faculties.tools.specs(
            {"section": [section.name for section in sections]}, agent.options
        ),
        zone=ZoneInfo(options.timezone),
    )
    model = faculties.models.get(agent.model)
    layout = await layout_of(model, options, faculties.limits)
    shape = await frame(mind, model, faculties.prompts, layout, mind.state.token_scale)
    shown = await render_queue(mind, queue, shape.budget.largest_counted, model)
    failure = (row["summary"] or {}).get("failure")
    return View(shape, queue, shown, failure)
