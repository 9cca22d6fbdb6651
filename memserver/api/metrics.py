"""Metrics for Prometheus: no part of the API, so not in its description."""

import asyncio
from contextlib import suppress

from fastapi import APIRouter, Request
from fastapi.responses import Response

import memserver
from memserver.api.dependencies import ServicesDep
from memserver.api.middleware.access import METRICS
from memserver.errors import DatabaseError, Forbidden, NotFound
from memserver.storage import inbox, jobs
from memserver.storage.database import Database
from memserver.telemetry.prometheus import Gauges, PrometheusMetrics

MOST_COUNTED = 10_000
router = APIRouter(include_in_schema=False)


@router.get(METRICS)
async def show_metrics(request: Request, services: ServicesDep) -> Response:
    """What all worker processes of this server have measured, and what waits in the database."""
    metrics = services.deps.metrics
    if not isinstance(metrics, PrometheusMetrics):
        raise NotFound("The server measures nothing.", hint="MEMSERVER_METRICS=operator starts it.")
    caller = getattr(request.state, "caller", None)  # nobody where everybody may read them
    if caller is not None and not caller.operates:
        raise Forbidden(
            "Only the server's operator reads its metrics.",
            hint="Ask with an admin key of the tenant 'default', or set MEMSERVER_METRICS=open.",
        )
    gauges = await _now(services.database)
    accept = request.headers.get("accept", "")
    content, media_type = await asyncio.to_thread(metrics.render, accept, gauges)
    return Response(content, media_type=None, headers={"Content-Type": media_type})


async def _now(database: Database) -> Gauges:
    version = (("version", memserver.__version__),)
    gauges: Gauges = {
        "memserver_info": ("The server's version.", {version: 1}),
        "memserver_database_up": ("Whether the database answers.", {(): 0}),
    }
    with suppress(DatabaseError):
        async with database.across_tenants() as tx:
            agents = await inbox.waiting_agents(tx, MOST_COUNTED)
            queued = await jobs.count(tx)
        gauges["memserver_database_up"][1][()] = 1
        waiting = f"Agents with turns that no worker serves, up to {MOST_COUNTED}."
        gauges["memserver_agents_waiting"] = (waiting, {(): len(agents)})
        gauges["memserver_jobs"] = (
            "Jobs in the queue, by name and status.",
            {(("job", name), ("status", status)): count for name, status, count in queued},
        )
    return gauges
