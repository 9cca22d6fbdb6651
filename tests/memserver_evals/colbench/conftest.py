"""A sandbox for a module's tests, with and without namespaces."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from memserver_evals.colbench.sandbox.pool import Sandbox
from tests.memserver_evals.colbench.limits import PATIENT


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=["namespaces", "none"])
async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    async with Sandbox(PATIENT, workers=2, namespaces=request.param == "namespaces") as made:
        if (await made.protection()).namespaces is not (request.param == "namespaces"):
            pytest.skip("this machine allows no namespaces")
        yield made
