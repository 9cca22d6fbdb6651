"""Any endpoint that people have: one story, against a stub of each provider."""

from collections.abc import Iterator

import pytest

from tests.endpoints.provider import Provider
from tests.endpoints.providers.catalog import PROVIDERS
from tests.endpoints.story import play
from tests.endpoints.stub import Stub
from tests.endpoints.table import keep, rows
from tests.support.http_app import serving
from tests.support.server import OneDatabase


@pytest.fixture(scope="module")
def stub() -> Stub:
    return Stub.of(PROVIDERS)


@pytest.fixture(scope="module")
def url(stub: Stub) -> Iterator[str]:
    with serving(stub.app) as base:
        yield base


OPEN: dict[str, str] = {}
"""Providers whose story fails yet, and what doesn't work there."""


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.slug)
async def test_an_agent_works_with_every_provider(
    provider: Provider, stub: Stub, url: str, database: OneDatabase, request: pytest.FixtureRequest
) -> None:
    if (reason := OPEN.get(provider.slug)) is not None:
        keep(provider, reason)
        request.applymarker(pytest.mark.xfail(reason=reason))
    reported = await play(provider, stub.begin(provider.slug), url, database)
    if reason is None:
        keep(provider, reported)


def test_the_table_has_every_provider_once() -> None:
    titles = [line.split(" | ")[0].removeprefix("| ") for line in rows()]
    assert titles == [provider.title for provider in PROVIDERS]
