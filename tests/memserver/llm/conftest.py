"""A model at an endpoint that refuses what a test says."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from memserver.llm.openai_compatible import ModelOptions, OpenAICompatible
from memserver.openai_http.endpoint import Endpoint
from tests.memserver.llm.refusing_endpoint import Stub
from tests.support.http_app import Current


@pytest.fixture
def stub() -> Stub:
    return Stub()


@pytest.fixture
async def made(stub: Stub, current: Current, served: str) -> AsyncIterator[Any]:
    current.app = Starlette(routes=[Route("/v1/chat/completions", stub.complete, methods=["POST"])])
    models: list[OpenAICompatible] = []

    def make(**options: Any) -> OpenAICompatible:
        endpoint = Endpoint(served, max_retries=0)
        models.append(OpenAICompatible(endpoint, ModelOptions(model="m", **options)))
        return models[-1]

    yield make
    for model in models:
        await model.aclose()
