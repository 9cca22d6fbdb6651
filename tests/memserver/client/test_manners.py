"""What the client says where it is used in a wrong way."""

from typing import Any
from uuid import UUID

import pytest

from memserver.client import AsyncClient, Client
from memserver.client.models import Agent
from memserver.errors import InvalidInput
from memserver.testing.scripted import ScriptedModel
from tests.support.client import served
from tests.support.server import OneDatabase


def test_an_address_without_a_scheme_is_one_of_http(database: OneDatabase) -> None:
    with served(database, ScriptedModel()) as server:
        for url in (server.url.removeprefix("http://"), f"{server.url}/v1/", server.url):
            with Client(url) as client:
                assert client.health().status == "ok"


@pytest.mark.parametrize(
    "url", ["ftp://host", "http://", "", "://x", "http//host", "http:/host", "host:82833"]
)
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
    with Client() as client, pytest.raises(TypeError, match=r"^Messages\.all\(\) missing 1"):
        client.messages.all()  # type: ignore[call-arg]


async def test_so_is_one_of_the_client_that_is_awaited() -> None:
    async with AsyncClient() as client:
        with pytest.raises(TypeError, match=r"^Agents\.create\(\) got an unexpected"):
            await client.agents.create("sam", colour="red")  # type: ignore[call-arg]


def test_what_a_newer_server_adds_and_allows_does_not_break_an_older_client() -> None:
    options = {"max_steps": 100_000, "timezone": "Mars/Olympus_Mons", "not_known_yet": [1]}
    read = Agent.model_validate(
        {
            "id": UUID(int=1),
            "name": "sam",
            "model": None,
            "system_prompt": None,
            "options": options,
            "metadata": {},
            "language": "auto",
            "message_count": 0,
            "created_at": "2026-02-07T14:03:00Z",
            "updated_at": "2026-02-07T14:03:00Z",
            "not_known_yet": {},
        }
    )
    assert (read.options.max_steps, read.options.timezone) == (100_000, "Mars/Olympus_Mons")
