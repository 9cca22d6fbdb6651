"""Any endpoint that people have: one story, against a stub of each provider."""

from collections.abc import Iterator

import pytest

from tests.endpoints.provider import Provider
from tests.endpoints.providers.catalog import PROVIDERS
from tests.endpoints.story import tell
from tests.endpoints.stub import Stub
from tests.support.http_app import serving
from tests.support.server import OneDatabase


@pytest.fixture(scope="module")
def stub() -> Stub:
    return Stub.of(PROVIDERS)


@pytest.fixture(scope="module")
def url(stub: Stub) -> Iterator[str]:
    with serving(stub.app) as base:
        yield base


WORKING = {"vllm-hermes"}
"""The rest waits for the parts that know how endpoints differ."""


@pytest.mark.parametrize(
    "provider",
    [
        pytest.param(
            each,
            id=each.slug,
            marks=()
            if each.slug in WORKING
            else pytest.mark.xfail(strict=False, reason="its rules are not known yet"),
        )
        for each in PROVIDERS
    ],
)
async def test_an_agent_works_with_every_provider(
    provider: Provider, stub: Stub, url: str, database: OneDatabase
) -> None:
    await tell(provider, stub.begin(provider.slug), url, database)
