"""The Python client of memserver's API: `Client` waits, `AsyncClient` is awaited.

Both send the requests of the modules named `…_requests`, return the values of `models`, stream
the events of `events`, and raise the exceptions of `memserver.errors` by the server's stable codes.
"""

from memserver.client.async_client import AsyncClient
from memserver.client.failures import OtherError, ServerUnreachable, UnexpectedAnswer
from memserver.client.requests import UNSET
from memserver.client.retries import Retries
from memserver.client.sync_client import Client

__all__ = [
    "UNSET",
    "AsyncClient",
    "Client",
    "OtherError",
    "Retries",
    "ServerUnreachable",
    "UnexpectedAnswer",
]
