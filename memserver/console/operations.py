"""How the server does, as it is now: for the operator."""

from typing import Any

from fastapi.responses import Response

from memserver.client.models import Operations
from memserver.console.charts import row_of_bars, seconds, stacked
from memserver.console.routing import PageRouter
from memserver.console.visit import VisitDep

router = PageRouter()
SPANS = (15, 60, 360, 1440)


def _values(load: Operations) -> dict[str, Any]:
    minutes = load.minutes
    times = [f"{each.at:%H:%M}" for each in minutes]
    turns = [float(each.turns) for each in minutes]
    latencies = [each.p95 or 0.0 for each in minutes]
    spent = {
        name: value for name, value in load.step_seconds.model_dump().items() if value is not None
    }
    prompt_tokens = sum(each.prompt_tokens for each in minutes)
    cached = sum(each.cached_tokens for each in minutes)
    return {
        "load": load,
        "turns": sum(each.turns for each in minutes),
        "steps": sum(each.steps for each in minutes),
        "failed": sum(each.errors for each in minutes),
        "completion_tokens": sum(each.completion_tokens for each in minutes),
        "prompt_tokens": prompt_tokens,
        "cached_share": cached / prompt_tokens if prompt_tokens else 0.0,
        "turn_bars": row_of_bars(
            turns, [f"{at}: {each.turns} turns" for at, each in zip(times, minutes, strict=True)]
        ),
        "latency_bars": row_of_bars(
            latencies,
            [f"{at}: p95 {seconds(each.p95)}" for at, each in zip(times, minutes, strict=True)],
        ),
        "token_bars": row_of_bars(
            [float(each.prompt_tokens + each.completion_tokens) for each in minutes],
            [
                f"{at}: {each.prompt_tokens:,} tokens read, {each.completion_tokens:,} written"
                for at, each in zip(times, minutes, strict=True)
            ],
        ),
        "spent": stacked(spent),
    }


@router.get("/operations")
async def show_operations(visit: VisitDep, minutes: int = 60) -> Response:
    load = await visit.api.operator.operations(minutes)
    template = "operations_now.html" if visit.by_htmx else "operations.html"
    return visit.page(template, section="operations", minutes=minutes, spans=SPANS, **_values(load))
