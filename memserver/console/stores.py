"""Recall and archival storage beside a conversation: searches, passages, documents."""

from functools import partial
from typing import cast
from uuid import UUID

from fastapi.responses import HTMLResponse, Response
from starlette.datastructures import UploadFile

from memserver.client.models import RecallMode, SearchMode
from memserver.console.routing import PageRouter
from memserver.console.visit import Visit, VisitDep

router = PageRouter()
RECALL_MODES = {
    "hybrid": "Text, words and meaning",
    "exact": "The very text",
    "words": "Words, in any form",
    "meaning": "Meaning",
}
ARCHIVAL_MODES = {"hybrid": "Meaning and words", "vector": "Meaning", "text": "Words"}
ON_A_PAGE = 10


def _mode(wanted: str, modes: dict[str, str]) -> str:
    return wanted if wanted in modes else next(iter(modes))


@router.get("/agents/{agent}/side/recall")
async def show_recall(
    visit: VisitDep, agent: UUID, query: str = "", mode: str = "", page: int = 1
) -> Response:
    mode = _mode(mode, RECALL_MODES)
    await visit.api.agents.get(agent)
    found = None
    if query.strip():
        wanted = cast("RecallMode", mode)
        found = await visit.api.recall.search(
            agent, query.strip(), mode=wanted, page=page, limit=ON_A_PAGE
        )
    return visit.page(
        "side_recall.html",
        agent_id=agent,
        query=query,
        modes=RECALL_MODES,
        mode=mode,
        found=found,
        address=partial(visit.url, "agents", agent, "side", "recall"),
    )


@router.get("/agents/{agent}/side/archival")
async def show_archival(
    visit: VisitDep, agent: UUID, query: str = "", mode: str = "", page: int = 1
) -> Response:
    """Results of a search, or else the newest passages; and the documents that were put in."""
    mode = _mode(mode, ARCHIVAL_MODES)
    found = newest = None
    if query.strip():
        wanted = cast("SearchMode", mode)
        found = await visit.api.archival.search(
            agent, query.strip(), mode=wanted, page=page, limit=ON_A_PAGE
        )
    else:
        newest = await visit.api.archival.list(agent, limit=ON_A_PAGE, order="desc")
    return visit.page(
        "side_archival.html",
        agent_id=agent,
        query=query,
        modes=ARCHIVAL_MODES,
        mode=mode,
        found=found,
        newest=newest,
        address=partial(visit.url, "agents", agent, "side", "archival"),
        documents=await _documents(visit, agent),
    )


@router.post("/agents/{agent}/passages")
async def insert_passage(visit: VisitDep, agent: UUID) -> Response:
    form = await visit.form()
    await visit.api.archival.insert(agent, [str(form.get("text", "")).strip()])
    return await show_archival(visit, agent)


@router.post("/agents/{agent}/passages/{passage}/delete")
async def delete_passage(visit: VisitDep, agent: UUID, passage: UUID) -> Response:
    await visit.form()
    await visit.api.archival.delete(agent, passage)
    return HTMLResponse("")


@router.get("/agents/{agent}/documents")
async def show_documents(visit: VisitDep, agent: UUID) -> Response:
    return visit.page("documents.html", agent_id=agent, documents=await _documents(visit, agent))


@router.post("/agents/{agent}/documents")
async def upload_documents(visit: VisitDep, agent: UUID) -> Response:
    form = await visit.form()
    for file in form.getlist("file"):
        if isinstance(file, UploadFile) and file.filename:
            content = await file.read()
            await visit.api.documents.upload_to_agent(agent, content, file.filename)
    return await show_documents(visit, agent)


@router.post("/agents/{agent}/documents/{document}/{action}")
async def change_document(visit: VisitDep, agent: UUID, document: UUID, action: str) -> Response:
    await visit.form()
    documents = visit.api.documents
    actions = {"cancel": documents.cancel, "resume": documents.resume}
    await actions.get(action, documents.delete)(document)
    return await show_documents(visit, agent)


async def _documents(visit: Visit, agent: UUID) -> dict[str, object]:
    page = await visit.api.documents.list_of_agent(agent, limit=20, order="desc")
    busy = any(each.state in {"waiting", "running"} for each in page.items)
    return {"items": page.items, "busy": busy}
