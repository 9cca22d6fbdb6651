"""For the server's operator: its load, its models' endpoint, and the results folder."""

import asyncio
from contextlib import suppress
from pathlib import Path as Folder
from typing import Annotated

from fastapi import Depends, Path, Query

from memserver.api import reports
from memserver.api.dependencies import ByName, CallerDep, ServicesDep
from memserver.api.json_body import Router
from memserver.api.schemas.answers import context_model
from memserver.errors import Forbidden, ModelError, NotFound
from memserver.llm.base import ChatModel
from memserver.storage import turn_steps
from memserver.storage.api_keys import DEFAULT_TENANT
from memserver.wire.base import Page
from memserver.wire.operations import KnownModel, ModelEndpoint, Operations, Report, ReportContent


async def _operator_only(caller: CallerDep) -> None:
    if not caller.operates:
        raise Forbidden(
            "This is for the server's operator.",
            hint=f"That is an admin key of the tenant {DEFAULT_TENANT!r}.",
        )


router = Router(tags=["operations"], dependencies=[Depends(_operator_only)])


@router.get("/operations")
async def get_operations(
    services: ServicesDep,
    minutes: Annotated[int, Query(ge=1, le=1440, description="How far to look back.")] = 60,
) -> Operations:
    """How the server does: turns a minute, latency, errors, what waits, jobs, the database's size.

    All tenants and all processes together. For the operator.
    """
    return Operations.model_validate(await turn_steps.operations(services.database, minutes))


@router.get("/endpoint")
async def get_endpoint(services: ServicesDep) -> ModelEndpoint:
    """The models' endpoint as this process sees it: its state, models and adapters, and how they are asked.

    For the operator.
    """
    found = await services.deps.models.inspect()
    if found is None:
        raise NotFound("The models of this server have no endpoint.")
    known = [await _known_model(model, ask=found.state == "ok") for model in found.used]
    return ModelEndpoint.model_validate(
        {
            **{name: getattr(found, name) for name in found.__dataclass_fields__},
            "known": known,
            "embedder": services.archival.embedder.describe(),
        }
    )


@router.get("/reports")
async def list_reports(services: ServicesDep, listing: ByName) -> Page[Report, str]:
    """List the runs of evaluations and trainings in the results folder, oldest first. For the operator."""
    found = await asyncio.to_thread(reports.find_reports, _results_dir(services))
    items, more = listing.paginate(found, lambda report: report.name)
    return Page[Report, str](items=items, next=more)


@router.get("/reports/{name:path}")
async def get_report(
    name: Annotated[str, Path(description="As the list has it.", examples=["locomo/monday"])],
    services: ServicesDep,
) -> ReportContent:
    """One run's report: an evaluation's scores, or a training's figures and curves. For the operator."""
    return await asyncio.to_thread(reports.read_report, _results_dir(services), name)


def _results_dir(services: ServicesDep) -> Folder:
    if services.results_dir is None:
        raise NotFound(
            "This server has no results folder.", hint="MEMSERVER_RESULTS_DIR names one."
        )
    return services.results_dir


async def _known_model(model: ChatModel, *, ask: bool) -> KnownModel:
    window = None
    if ask:
        with suppress(ModelError):
            window = await model.context_window()
    return KnownModel(
        **context_model(model).model_dump(include={"name", "mode", "profile", "changes"}),
        window=window,
        counts_exactly=model.counts_exactly,
    )
