"""Agents, and what their prompts hold."""

import json
import secrets
from dataclasses import replace
from typing import Annotated
from uuid import UUID

from fastapi import Query

from memserver import messages
from memserver.agent.inspect_context import inspect_context
from memserver.api.dependencies import AgentId, BeginDep, ById, ServicesDep, TenantDep
from memserver.api.json_body import Router
from memserver.api.schemas.agents import AgentChange, AgentIn, ForkIn
from memserver.api.schemas.answers import context_model
from memserver.errors import InvalidInput
from memserver.memory.working_context import default_sections
from memserver.storage import agents, collections, forking, languages
from memserver.storage.agents import NewAgent
from memserver.text import clean
from memserver.wire.agents import Agent
from memserver.wire.base import Page
from memserver.wire.messages import ContextPart, ContextView, Message

router = Router(prefix="/agents", tags=["agents"])


@router.post("", status_code=201)
async def create_agent(new: AgentIn, services: ServicesDep, tenant: TenantDep) -> Agent:
    """Create an agent."""
    dimension = await services.archival.dimension()
    async with services.database.tenant(tenant) as tx:
        agent = await agents.create(
            tx,
            tenant,
            NewAgent(
                name=new.name or f"agent-{secrets.token_hex(4)}",
                sections=_sections(new),
                embedding_model=services.archival.embedder.model,
                dimension=dimension,
                model=new.model,
                system_prompt=new.system_prompt or None,
                options=new.options.as_stored(),
                metadata=new.metadata,
                language=new.language,
            ),
        )
    return Agent.model_validate(agent)


@router.get("")
async def list_agents(
    begin: BeginDep,
    listing: ById,
    name: Annotated[str | None, Query(max_length=200, description="Only this one.")] = None,
    search: Annotated[
        str | None,
        Query(max_length=200, description="Those whose names hold this, in upper or lower case."),
    ] = None,
) -> Page[Agent, UUID]:
    """List agents."""
    async with begin() as tx:
        if search and not name:
            found = await agents.search_page(tx, listing.query, clean(search))
        else:
            found = await agents.list_page(tx, listing.query, name=clean(name) if name else None)
    return listing.page(Page[Agent, UUID], found, lambda agent: agent.id)


@router.get("/{agent}")
async def get_agent(agent_id: AgentId, begin: BeginDep) -> Agent:
    """Get one agent."""
    async with begin() as tx:
        return Agent.model_validate(await agents.get(tx, agent_id))


@router.patch("/{agent}")
async def update_agent(agent_id: AgentId, change: AgentChange, begin: BeginDep) -> Agent:
    """Change an agent; what is left out stays. `options` and `metadata` are replaced as a whole.

    In a new language its passages are lexed again by a job; until it is done, words are looked for in both.
    """
    values = change.values()
    if change.options is not None:
        values["options"] = change.options.as_stored()
    language = values.pop("language", None)
    async with begin() as tx:
        if language is not None:
            await languages.change(tx, (await collections.own_of(tx, agent_id)).id, language)
        return Agent.model_validate(await agents.update(tx, agent_id, values))


@router.delete("/{agent}", status_code=204)
async def delete_agent(agent_id: AgentId, begin: BeginDep, services: ServicesDep) -> None:
    """Delete an agent with its whole memory."""
    async with begin() as tx:
        await agents.delete(tx, agent_id)
    services.worker.stop(agent_id)


@router.post("/{agent}/fork", status_code=201)
async def fork_agent(agent_id: AgentId, wanted: ForkIn, begin: BeginDep) -> Agent:
    """Make another agent whose history ends at a message of this one, with this one's memory."""
    async with begin() as tx:
        copy = await forking.fork(tx, agent_id, name=wanted.name, position=wanted.position)
        return Agent.model_validate(copy)


@router.get("/{agent}/context")
async def get_context(agent_id: AgentId, services: ServicesDep, tenant: TenantDep) -> ContextView:
    """What the agent's prompt holds now, part by part, in text and tokens."""
    view = await inspect_context(services.deps, tenant, agent_id)
    budget = view.prompt.budget
    parts = [
        ContextPart(name=part.name, tokens=part.tokens, text=part.text)
        for part in view.prompt.parts
    ]
    queue = sum(budget.shown(message) for message in view.queue)
    shown = "\n".join(_shown(part) for part in await view.shown())
    return ContextView(
        window=budget.window,
        reserved=budget.reserved,
        used=budget.used(view.queue),
        token_scale=budget.scale,
        parts=[*parts, ContextPart(name="queue", tokens=queue, text=shown)],
        queue=[
            Message.model_validate(replace(message, tokens=budget.shown(message)))
            for message in view.queue
        ],
        summary_failure=view.agent.snapshot.summary_failure,
        model=context_model(view.model),
    )


def _shown(part: messages.PromptMessage) -> str:
    if part.role == "assistant" and part.call is not None:
        arguments = json.dumps(dict(part.call.arguments), ensure_ascii=False)
        return f"assistant: {part.call.name} {arguments}"
    return f"{part.role}: {part.text}"


def _sections(new: AgentIn) -> list[messages.MemorySection]:
    if new.sections is None:
        return list(default_sections())
    names = [section.name for section in new.sections]
    if len(set(names)) < len(names):
        raise InvalidInput("sections: two sections have the same name.")
    made = []
    for given in new.sections:
        if len(given.text) > given.limit:
            raise InvalidInput(
                f"sections.{given.name}.text: {len(given.text)} characters, but the limit is {given.limit}."
            )
        made.append(messages.MemorySection(given.name, given.text, given.limit, given.description))
    return made
