"""A running server, as commands reach it."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from uuid import UUID

from httpx2 import InvalidURL

from memserver.cli.options import server_url
from memserver.client import Client
from memserver.client.failures import ServerUnreachable, UnexpectedAnswer
from memserver.client.models import Agent
from memserver.client.retries import Retries
from memserver.errors import NotFound, SetupError

ANSWER_SECONDS = 300
RETRIES = Retries(most=2)
"""Somebody waits, and may have given a wrong address."""


@contextmanager
def connect(
    url: str | None, api_key: str | None, seconds: float = ANSWER_SECONDS
) -> Iterator[Client]:
    """A client of the server at this URL, or of the one on this machine. Raises SetupError where no memserver answers."""
    url = server_url(url)
    try:
        with Client(url, api_key=api_key, timeout=seconds, retries=RETRIES) as client:
            yield client
    except (ServerUnreachable, UnexpectedAnswer, InvalidURL) as error:
        raise SetupError(
            f"No memserver answers at {url}: {error}",
            hint="Start it by `memserver serve`, or name its address: --url http://host:8283",
        ) from error


def find_agent(client: Client, named: str) -> Agent:
    """The agent of this id or name, which may have a slash, as a path may not. Raises NotFound."""
    if found := client.agents.find(named):
        return found
    with suppress(ValueError, NotFound):
        return client.agents.get(UUID(named))
    raise NotFound(f"There is no agent {named!r}.", hint="memserver agents list shows them.")
