"""What the client says where it is used in a wrong way."""

from typing import Any

import pytest

from memserver.client import AsyncClient, Client
from memserver.errors import InvalidInput
from memserver.testing.scripted import ScriptedModel
from tests.support.client import served
from tests.support.server import OneDatabase


def test_an_address_without_a_scheme_is_one_of_http(database: OneDatabase) -> None:
    with served(database, ScriptedModel()) as server:
        for url in (server.url.removeprefix("http://"), f"{server.url}/v1/", server.url):
            with Client(url) as client:
                assert client.health().status == "ok"


@pytest.mark.parametrize("url", ["ftp://host", "http://", "", "://x"])
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_what_is_no_address_is_refused_at_once(kind: Any, url: str) -> None:
    with pytest.raises(InvalidInput, match="no server's address") as refused:
        kind(url)
    assert "http://127.0.0.1:8283" in refused.value.hint


def test_a_wrong_argument_is_an_error_about_the_method_that_was_called() -> None:
    with Client() as client, pytest.raises(TypeError) as wrong:
        client.agents.create("sam", colour="red")  # type: ignore[call-arg]
    assert str(wrong.value) == "Agents.create() got an unexpected keyword argument 'colour'"
    with Client() as client, pytest.raises(TypeError, match=r"^Archival\.search\(\) missing 1"):
        client.archival.search("sam")  # type: ignore[call-arg]


async def test_so_is_one_of_the_client_that_is_awaited() -> None:
    async with AsyncClient() as client:
        with pytest.raises(TypeError, match=r"^Agents\.create\(\) got an unexpected"):
            await client.agents.create("sam", colour="red")  # type: ignore[call-arg]
