"""Agents: the list, and making, changing, copying, moving and deleting them."""

import secrets
import tempfile
from pathlib import Path
from typing import Any
from uuid import UUID

import anyio
from fastapi.responses import Response, StreamingResponse
from starlette.background import BackgroundTask
from starlette.datastructures import UploadFile

from memserver.client.models import Agent
from memserver.client.requests import PIECE
from memserver.console.agent_form import OPTIONS, read_agent, read_sections
from memserver.console.routing import PageRouter
from memserver.console.visit import Visit, VisitDep
from memserver.errors import InvalidInput, MemserverError

router = PageRouter()
ON_A_PAGE = 30
RULES = ("approval", "first", "terminal", "required", "max_calls")


@router.get("/agents")
async def list_agents(visit: VisitDep, search: str = "", after: str = "") -> Response:
    page = await visit.api.agents.list(
        search=search.strip() or None, after=after or None, limit=ON_A_PAGE, order="desc"
    )
    whole = visit.request.headers.get("hx-target") != "agents"
    template = "agents.html" if whole else "agents_table.html"
    return visit.page(template, section="agents", page=page, search=search, after=after)


@router.get("/agents/new")
async def new_agent(visit: VisitDep) -> Response:
    tools = (await visit.api.tools.list(limit=100)).items
    return visit.page("agent_new.html", section="agents", options=OPTIONS, tools=tools, agent=None)


@router.post("/agents/new")
async def create_agent(visit: VisitDep) -> Response:
    form = await visit.form()
    fields = {name: value for name, value in read_agent(form).items() if value is not None}
    name = str(form.get("name", "")).strip() or None
    agent = await visit.api.agents.create(name, sections=read_sections(form), **fields)
    for tool in form.getlist("tool"):
        await visit.api.tools.attach(agent.id, str(tool), approval=form.get("approval") == "on")
    return visit.go("agents", agent.id)


@router.get("/agents/{agent}/settings")
async def show_settings(visit: VisitDep, agent: str) -> Response:
    found = await visit.api.agents.get(agent)
    return visit.page("agent_settings.html", section="agents", options=OPTIONS, agent=found)


@router.post("/agents/{agent}/settings")
async def save_settings(visit: VisitDep, agent: UUID) -> Response:
    form = await visit.form()
    fields = read_agent(form)
    name = str(form.get("name", "")).strip()
    before = await visit.api.agents.get(agent)
    if fields["language"] == before.language:
        del fields["language"]
    await visit.api.agents.update(agent, name=name, **fields)
    return visit.go("agents", agent)


@router.post("/agents/{agent}/duplicate")
async def duplicate_agent(visit: VisitDep, agent: UUID) -> Response:
    """Another agent that is set up as this one, sections as they are now, without its history and passages."""
    await visit.form()
    source = await visit.api.agents.get(agent)
    sections = (await visit.api.working_context.get(agent)).sections
    copy = await visit.api.agents.create(
        f"{source.name[:180]}-copy-{secrets.token_hex(2)}",
        sections=[
            section.model_dump(include={"name", "text", "limit", "description"})
            for section in sections
        ],
        **_settings_of(source),
    )
    try:
        await _copy_tools(visit, agent, copy.id)
        async for collection in visit.api.archival.all_collections(agent):
            if not collection.own:
                await visit.api.archival.attach(copy.id, collection.id)
    except MemserverError:
        await visit.api.agents.delete(copy.id)
        raise
    return visit.go("agents", copy.id, "settings")


def _settings_of(agent: Agent) -> dict[str, Any]:
    return {
        "model": agent.model,
        "system_prompt": agent.system_prompt,
        "options": agent.options.model_dump(exclude_none=True),
        "metadata": agent.metadata,
        "language": agent.language,
    }


async def _copy_tools(visit: Visit, source: UUID, copy: UUID) -> None:
    has = {tool.name: tool async for tool in visit.api.tools.all_of_agent(source)}
    for name in {tool.name async for tool in visit.api.tools.all_of_agent(copy)} - has.keys():
        await visit.api.tools.detach(copy, name)
    for tool in has.values():
        if tool.kind != "memory" or any(getattr(tool, rule) for rule in RULES):
            await visit.api.tools.attach(
                copy, tool.name, **{rule: getattr(tool, rule) for rule in RULES}
            )


@router.post("/agents/{agent}/fork")
async def fork_agent(visit: VisitDep, agent: UUID) -> Response:
    form = await visit.form()
    position = str(form.get("position", ""))
    made = await visit.api.agents.fork(agent, position=int(position) if position else None)
    return visit.go("agents", made.id)


@router.post("/agents/{agent}/delete")
async def delete_agent(visit: VisitDep, agent: UUID) -> Response:
    """Delete it, if its name was typed."""
    form = await visit.form()
    found = await visit.api.agents.get(agent)
    if str(form.get("name", "")).strip() != found.name:
        raise InvalidInput(
            "That is not its name, so it was not deleted.", hint=f"Type {found.name}."
        )
    await visit.api.agents.delete(agent)
    return visit.go("agents")


@router.get("/agents/{agent}/export")
async def export_agent(visit: VisitDep, agent: UUID, history: bool = False) -> Response:
    path = visit.api_path("agents", agent, "export")
    answer = await visit.send("GET", path, params={"history": history})
    kept = ("content-disposition", "content-type")
    return StreamingResponse(
        answer.aiter_bytes(),
        headers={name: answer.headers[name] for name in kept},
        background=BackgroundTask(answer.aclose),
    )


@router.post("/agents/import")
async def import_agent(visit: VisitDep) -> Response:
    form = await visit.form()
    file = form.get("file")
    if not isinstance(file, UploadFile) or not file.filename:
        raise InvalidInput("No file was chosen.")
    name = str(form.get("name", "")).strip() or None
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "agent"
        async with await anyio.open_file(whole, "wb") as writing:
            while piece := await file.read(PIECE):
                await writing.write(piece)
        made = await visit.api.agents.import_file(whole, name=name)
    return visit.page("imported.html", section="agents", made=made)
