"""Collections of passages that agents can share."""

from functools import partial
from typing import Annotated
from uuid import UUID

from fastapi import Query

from memserver.api import passages as common
from memserver.api.dependencies import BeginDep, ById, CollectionId, ServicesDep, TenantDep
from memserver.api.json_body import Router
from memserver.api.passages import FiltersDep, SearchDep
from memserver.api.schemas.archival import CollectionIn, CollectionPatch, PassagePatch, PassagesIn
from memserver.storage import collections, languages, passage_search, passages
from memserver.storage.collections import NewCollection
from memserver.storage.database import LazyTransaction, Transaction
from memserver.storage.passages import PassageChange
from memserver.text import clean
from memserver.wire.archival import ArchivalResults, Collection, Passage, Passages
from memserver.wire.base import Page

router = Router(prefix="/collections", tags=["collections"])


@router.post("", status_code=201)
async def create_collection(
    new: CollectionIn, services: ServicesDep, tenant: TenantDep
) -> Collection:
    """Create a collection; its vectors are of the server's embedding model."""
    dimension = await services.archival.dimension()
    async with services.database.tenant(tenant) as tx:
        made = await collections.create(
            tx,
            tenant,
            NewCollection(
                name=new.name,
                embedding_model=services.archival.embedder.model,
                dimension=dimension,
                description=new.description,
                metadata=new.metadata,
                language=new.language,
            ),
        )
    return Collection.model_validate(made)


@router.get("")
async def list_collections(
    begin: BeginDep,
    listing: ById,
    name: Annotated[str | None, Query(max_length=200, description="Only this one.")] = None,
) -> Page[Collection, UUID]:
    """List the shared collections. Agents' own ones are not among them."""
    async with begin() as tx:
        found = await collections.list_page(tx, listing.query, name=clean(name) if name else None)
    return listing.page(Page[Collection, UUID], found, lambda collection: collection.id)


@router.get("/{collection}")
async def get_collection(collection_id: CollectionId, begin: BeginDep) -> Collection:
    """Get one collection, an agent's own too."""
    async with begin() as tx:
        return Collection.model_validate(await collections.get(tx, collection_id))


@router.patch("/{collection}")
async def update_collection(
    collection_id: CollectionId, change: CollectionPatch, begin: BeginDep
) -> Collection:
    """Change name, description, metadata or language; what is left out stays.

    In a new language the passages are lexed again by a job; until it is done, words are looked for in both.
    """
    values = change.values()
    async with begin() as tx:
        if language := values.pop("language", None):
            await languages.change(tx, collection_id, language)
        return Collection.model_validate(await collections.update(tx, collection_id, values))


@router.delete("/{collection}", status_code=204)
async def delete_collection(collection_id: CollectionId, begin: BeginDep) -> None:
    """Delete a collection with its passages; agents it is attached to lose it."""
    async with begin() as tx:
        await collections.delete(tx, collection_id)


@router.post("/{collection}/passages", status_code=201)
async def insert_passages(
    collection_id: CollectionId, new: PassagesIn, services: ServicesDep, tenant: TenantDep
) -> Passages:
    """Insert passages, all or none."""
    place = partial(collections.get, key=collection_id)
    return await common.insert(services, tenant, place, new)


@router.get("/{collection}/passages")
async def list_passages(
    collection_id: CollectionId,
    services: ServicesDep,
    tenant: TenantDep,
    filters: FiltersDep,
    listing: ById,
) -> Page[Passage, UUID]:
    """List passages."""
    wanted = filters.read(services)
    async with services.database.tenant(tenant) as tx:
        await collections.get(tx, collection_id)
        found = await passage_search.list_page(tx, collection_id, listing.query, wanted)
    return common.as_page(found, listing)


@router.get("/{collection}/passages/{passage_id}")
async def get_passage(collection_id: CollectionId, passage_id: UUID, begin: BeginDep) -> Passage:
    """Get one passage."""
    async with begin() as tx:
        return Passage.model_validate(await passages.get(tx, collection_id, passage_id))


@router.patch("/{collection}/passages/{passage_id}")
async def update_passage(
    collection_id: CollectionId,
    passage_id: UUID,
    change: PassagePatch,
    services: ServicesDep,
    tenant: TenantDep,
) -> Passage:
    """Change a passage; a new text is embedded again."""
    wanted = PassageChange(**change.values(), sets_expiry="expires_at" in change.model_fields_set)
    async with LazyTransaction(services.database, tenant) as transaction:
        changed = await services.archival.update(transaction, collection_id, passage_id, wanted)
    return Passage.model_validate(changed)


@router.delete("/{collection}/passages/{passage_id}", status_code=204)
async def delete_passage(collection_id: CollectionId, passage_id: UUID, begin: BeginDep) -> None:
    """Delete a passage."""
    async with begin() as tx:
        await passages.delete(tx, collection_id, passage_id)


@router.get("/{collection}/search")
async def search_collection(
    collection_id: CollectionId,
    services: ServicesDep,
    tenant: TenantDep,
    asked: SearchDep,
    filters: FiltersDep,
) -> ArchivalResults:
    """Search one collection, best first."""

    async def searched(tx: Transaction) -> list[collections.CollectionRow]:
        return [await collections.get(tx, collection_id)]

    return await asked.answer(services, tenant, searched, filters)
