"""An agent's archival storage: its own collection, and those that are attached to it."""

from functools import partial
from typing import Annotated
from uuid import UUID

from fastapi import Path
from starlette.convertors import StringConvertor, register_url_convertor

from memserver import messages
from memserver.api import passages as common
from memserver.api.dependencies import AgentId, BeginDep, ById, CollectionId, ServicesDep, TenantDep
from memserver.api.json_body import Router
from memserver.api.passages import FiltersDep, SearchDep
from memserver.api.schemas.archival import PassagesIn
from memserver.errors import InvalidInput
from memserver.memory import reading
from memserver.storage import collections, passage_search, passages
from memserver.text import clean
from memserver.wire.archival import ArchivalResults, Collection, Passage, Passages
from memserver.wire.base import Page


class _Label(StringConvertor):
    """The rest of a path, whatever is in it: a label ends in a collection's name."""

    regex = "(?s:.+)"


register_url_convertor("label", _Label())
router = Router(prefix="/agents/{agent}", tags=["archival storage"])


@router.post("/archival", status_code=201)
async def insert_archival(
    agent_id: AgentId, new: PassagesIn, services: ServicesDep, tenant: TenantDep
) -> Passages:
    """Insert passages into the agent's own collection, all or none."""
    own = partial(collections.own_of, agent_id=agent_id)
    return await common.insert(services, tenant, own, new)


@router.get("/archival")
async def list_archival(
    agent_id: AgentId, services: ServicesDep, tenant: TenantDep, filters: FiltersDep, listing: ById
) -> Page[Passage, UUID]:
    """List the passages of the agent's own collection."""
    wanted = filters.read(services)
    async with services.database.tenant(tenant) as tx:
        own = await collections.own_of(tx, agent_id)
        found = await passage_search.list_page(tx, own.id, listing.query, wanted)
    return common.as_page(found, listing)


@router.get("/archival/search")
async def search_archival(
    agent_id: AgentId,
    services: ServicesDep,
    tenant: TenantDep,
    asked: SearchDep,
    filters: FiltersDep,
) -> ArchivalResults:
    """Search the agent's own collection and those attached to it, best first."""
    searched = partial(collections.readable_by, agent_id=agent_id)
    return await asked.answer(services, tenant, searched, filters)


@router.get("/passages/{label:label}")
async def get_labelled_passage(
    agent_id: AgentId,
    label: Annotated[str, Path(max_length=250, description="As p17, or p17@handbook.")],
    begin: BeginDep,
) -> Passage:
    """Get one passage of what the agent searches, by the label that results have."""
    async with begin() as tx:
        found = await reading.find(tx, agent_id, clean(label))
    if not isinstance(found.item, messages.StoredPassage):
        raise InvalidInput(
            f"label: {found.label} is a message.", hint="GET …/messages/{position} has it."
        )
    return Passage.model_validate(found.item)


@router.delete("/archival/{passage_id}", status_code=204)
async def delete_archival(agent_id: AgentId, passage_id: UUID, begin: BeginDep) -> None:
    """Delete a passage of the agent's own collection."""
    async with begin() as tx:
        own = await collections.own_of(tx, agent_id)
        await passages.delete(tx, own.id, passage_id)


@router.get("/collections")
async def list_agent_collections(
    agent_id: AgentId, begin: BeginDep, listing: ById
) -> Page[Collection, UUID]:
    """List what the agent searches: its own collection, then those attached to it."""
    async with begin() as tx:
        found = await collections.readable_by(tx, agent_id)
    items, more = listing.paginate(found, lambda collection: collection.id)
    return Page[Collection, UUID].model_validate({"items": items, "next": more})


@router.put("/collections/{collection}", status_code=204)
async def attach_collection(
    agent_id: AgentId, collection_id: CollectionId, begin: BeginDep
) -> None:
    """Let the agent search a collection."""
    async with begin() as tx:
        await collections.attach(tx, agent_id, collection_id)


@router.delete("/collections/{collection}", status_code=204)
async def detach_collection(
    agent_id: AgentId, collection_id: CollectionId, begin: BeginDep
) -> None:
    """Take a collection from the agent; the collection stays."""
    async with begin() as tx:
        await collections.detach(tx, agent_id, collection_id)
