"""The models' endpoint: whether it answers, what it serves, adapters among it, and how its models are asked."""

from fastapi.responses import Response

from memserver.console.routing import PageRouter
from memserver.console.visit import VisitDep

router = PageRouter()


@router.get("/models")
async def show_endpoint(visit: VisitDep) -> Response:
    found = await visit.api.operator.endpoint()
    adapters = [each for each in found.served if each.kind == "adapter"]
    models = [each for each in found.served if each.kind == "model"]
    return visit.page(
        "models.html", section="models", endpoint=found, adapters=adapters, models=models
    )
