"""Documents: files that become passages of a collection."""

from typing import Annotated, Any
from urllib.parse import quote
from uuid import UUID

from fastapi import Query, Request, Response
from pydantic import BaseModel, Field

from memserver.api.dependencies import (
    AgentId,
    BeginDep,
    ById,
    CollectionId,
    Listing,
    ServicesDep,
    TenantDep,
)
from memserver.api.errors import documented
from memserver.api.json_body import Router
from memserver.api.schemas.agents import Name
from memserver.api.uploads import body_of, parse_metadata, read_upload
from memserver.errors import Conflict
from memserver.memory import documents as ingestion
from memserver.storage import agents, collections, documents
from memserver.storage.documents import Upload
from memserver.text import clean
from memserver.wire.archival import Document, DocumentText, UploadedDocument
from memserver.wire.base import Page
from memserver.wiring.services import Services

router = Router(tags=["documents"])


class UploadQuery(BaseModel):
    """What is said of an uploaded file."""

    name: str | None = Field(
        default=None, max_length=500, description="Instead of the one in the form."
    )
    tags: list[Name] = Field(default=[], max_length=100, description="Of all its passages.")
    metadata: str | None = Field(
        default=None, max_length=10_000, description="Of all its passages: a JSON object."
    )
    unique: bool = Field(
        default=False,
        description="Answer with the collection's document of the same content, if any; "
        "it gets these tags and metadata beside its own.",
    )


About = Annotated[UploadQuery, Query()]
ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"model": UploadedDocument, "description": "With `unique`: it is there already."},
    413: documented("The file is too large."),
    415: documented("A kind of file that is not read here."),
}

FILE = body_of("application/octet-stream")


@router.post("/agents/{agent}/documents", status_code=202, responses=ANSWERS, openapi_extra=FILE)
async def post_agent_document(
    agent_id: AgentId,
    request: Request,
    response: Response,
    services: ServicesDep,
    tenant: TenantDep,
    about: About,
) -> UploadedDocument:
    """Take a file into the agent's own collection: PDF, Office, HTML, e-mail, tables, text and more.

    The file is a form's part named `file`, or the body. When the answer comes it is stored, and nothing
    can lose it; its passages follow.
    """
    async with services.database.tenant(tenant) as tx:
        await agents.get(tx, agent_id)
        collection = await collections.own_of(tx, agent_id)
    return await _add(request, response, services, tenant, collection.id, about)


@router.post(
    "/collections/{collection}/documents", status_code=202, responses=ANSWERS, openapi_extra=FILE
)
async def post_collection_document(
    collection_id: CollectionId,
    request: Request,
    response: Response,
    services: ServicesDep,
    tenant: TenantDep,
    about: About,
) -> UploadedDocument:
    """Take a file into a collection, as for an agent's own."""
    async with services.database.tenant(tenant) as tx:
        await collections.get(tx, collection_id)
    return await _add(request, response, services, tenant, collection_id, about)


@router.get("/agents/{agent}/documents")
async def list_agent_documents(
    agent_id: AgentId, services: ServicesDep, tenant: TenantDep, listing: ById
) -> Page[Document, UUID]:
    """List the documents of the agent's own collection."""
    async with services.database.tenant(tenant) as tx:
        collection = await collections.own_of(tx, agent_id)
    return await _page(services, tenant, collection.id, listing)


@router.get("/collections/{collection}/documents")
async def list_collection_documents(
    collection_id: CollectionId, services: ServicesDep, tenant: TenantDep, listing: ById
) -> Page[Document, UUID]:
    """List the documents of a collection."""
    async with services.database.tenant(tenant) as tx:
        await collections.get(tx, collection_id)
    return await _page(services, tenant, collection_id, listing)


@router.get("/documents/{document_id}")
async def get_document(document_id: UUID, begin: BeginDep) -> Document:
    """How far a document is, and what went wrong."""
    async with begin() as tx:
        return Document.model_validate(await documents.get(tx, document_id))


@router.get("/documents/{document_id}/text")
async def get_document_text(document_id: UUID, begin: BeginDep) -> DocumentText:
    """What was read in a document."""
    async with begin() as tx:
        await documents.get(tx, document_id)
        read = await documents.text(tx, document_id)
    if read is None:
        raise Conflict("The document has not been read.", hint="Its state says why.")
    return DocumentText.model_validate(read)


@router.get(
    "/documents/{document_id}/file",
    response_class=Response,
    responses={200: {"content": {"application/octet-stream": {}}}},
)
async def get_document_file(document_id: UUID, begin: BeginDep) -> Response:
    """The file as it came, under its name."""
    async with begin() as tx:
        name = (await documents.get(tx, document_id)).name
        content = await documents.file(tx, document_id)
    return Response(
        content,
        media_type="application/octet-stream",
        headers={
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
            "X-Content-Type-Options": "nosniff",
        },
    )


@router.post("/documents/{document_id}/cancel")
async def cancel_document(document_id: UUID, begin: BeginDep) -> Document:
    """Stop taking a document in. The passages that are stored stay until it is deleted."""
    async with begin() as tx:
        return Document.model_validate(await documents.cancel(tx, document_id))


@router.post("/documents/{document_id}/resume", status_code=202)
async def resume_document(document_id: UUID, begin: BeginDep) -> Document:
    """Have a document that failed or was cancelled continue where it stood."""
    async with begin() as tx:
        document = await documents.resume(tx, document_id)
        await ingestion.queue(tx, document)
    return Document.model_validate(document)


@router.delete("/documents/{document_id}", status_code=204)
async def delete_document(document_id: UUID, begin: BeginDep) -> None:
    """Delete a document with its passages."""
    async with begin() as tx:
        await documents.delete(tx, document_id)


async def _add(
    request: Request,
    response: Response,
    services: Services,
    tenant: str,
    collection_id: UUID,
    about: UploadQuery,
) -> UploadedDocument:
    metadata = parse_metadata(about.metadata)
    sent = await read_upload(request, services.documents.limits.max_bytes)
    upload = Upload(
        sent.content,
        clean(about.name or sent.name)[:500] or "unnamed",
        sent.content_type,
        [clean(tag) for tag in about.tags],
        metadata,
    )
    document, new = await services.documents.add(tenant, collection_id, upload, unique=about.unique)
    if not new:
        response.status_code = 200
    shown = Document.model_validate(document)
    return UploadedDocument(**shown.model_dump(), is_new=new)


async def _page(
    services: Services, tenant: str, collection_id: UUID, listing: Listing
) -> Page[Document, UUID]:
    async with services.database.tenant(tenant) as tx:
        found = await documents.list_page(tx, collection_id, listing.query)
    return listing.page(Page[Document, UUID], found, lambda document: document.id)
