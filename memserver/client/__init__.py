"""The Python client of memserver's API: `Client` waits, `AsyncClient` is awaited.

Both have the resources of `clients`, return the values of `models`, stream the events of `events`,
and raise the exceptions of `memserver.errors` by the server's stable codes.
"""

from memserver.client.clients import AsyncClient, Client
from memserver.client.failures import OtherError, ServerUnreachable, UnexpectedAnswer
from memserver.client.requests import UNSET
from memserver.client.retries import Retries

__all__ = [
    "UNSET",
    "AsyncClient",
    "Client",
    "OtherError",
    "Retries",
    "ServerUnreachable",
    "UnexpectedAnswer",
]
