"""Agents as OpenAI's clients list them: as models."""

from typing import Annotated, Literal
from uuid import UUID

from fastapi import Query
from pydantic import BaseModel, Field

from memserver.api.dependencies import ServicesDep, TenantDep
from memserver.api.json_body import Router
from memserver.api.openai.addressing import NO_MEMORY, PER_USER, find_agent
from memserver.api.openai.errors import RESPONSES
from memserver.storage import agents
from memserver.storage.agents import AgentRow
from memserver.storage.rows import PageQuery

router = Router(tags=["OpenAI's API"], responses=RESPONSES)


class Model(BaseModel):
    """An agent; `id` is its name."""

    id: str = Field(examples=["sam"])
    object: Literal["model"] = "model"
    created: int = Field(examples=[1770465600])
    owned_by: str = "memserver"

    @classmethod
    def of(cls, agent: AgentRow) -> "Model":
        return cls(id=agent.name, created=int(agent.created_at.timestamp()))


class ModelList(BaseModel):
    """Agents, oldest first."""

    object: Literal["list"] = "list"
    data: list[Model]
    has_more: bool
    last_id: UUID | None


@router.get("/models")
async def list_models(
    services: ServicesDep,
    tenant: TenantDep,
    after: Annotated[UUID | None, Query(description="The `last_id` of the answer before.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 1000,
) -> ModelList:
    """List the agents, as models, without those that were made for users of another agent.

    OpenAI's clients read the first answer only.
    """
    async with services.database.tenant(tenant) as tx:
        found = await agents.templates_page(tx, PageQuery(limit + 1, after))
    return ModelList(
        data=[Model.of(agent) for agent in found[:limit]],
        has_more=len(found) > limit,
        last_id=found[:limit][-1].id if found else None,
    )


@router.get("/models/{model:path}")
async def get_model(model: str, services: ServicesDep, tenant: TenantDep) -> Model:
    """Get one agent, by its name or id, or by another form of the name that requests may have."""
    base = model.removesuffix(PER_USER).removesuffix(NO_MEMORY)
    agent = await find_agent(services, tenant, base)
    return Model.of(agent).model_copy(update={"id": agent.name + model.removeprefix(base)})
