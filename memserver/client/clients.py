"""Both clients, and the resources that they have."""

from collections.abc import Sequence
from typing import Generic, Self

import httpx2

from memserver.client.address import DEFAULT_URL, limits_of
from memserver.client.agents import Agents, Timers
from memserver.client.archival import Archival, CollectionPassages, Collections, Documents
from memserver.client.awaiting import AsyncTransport
from memserver.client.blocking import Transport
from memserver.client.keys import Keys, Tenants
from memserver.client.messages import Calls, Messages, Recall, Turns
from memserver.client.methods import Resource, TransportT, method
from memserver.client.models import Health, Readiness
from memserver.client.operator import Operator
from memserver.client.requests import Request, get
from memserver.client.retries import Retries
from memserver.client.sections import Sections, WorkingContexts
from memserver.client.tools import McpServers, Tools
from memserver.client.webhooks import Webhooks


class Memserver(Resource[TransportT], Generic[TransportT]):
    """All that both clients have.

    Attributes:
        agents: and what their prompts hold.
        messages: and the history.
        turns: what became of a message.
        calls: that wait for an approval or a result.
        working_context: of an agent.
        sections: by themselves.
        timers: of an agent.
        recall: everything that was said.
        archival: an agent's passages, and which collections it searches.
        collections: that agents can share.
        passages: of a collection.
        documents: files that become passages.
        tools: and which of them an agent has.
        mcp_servers: whose tools agents can attach.
        webhooks: that hear of events.
        keys: of the API.
        tenants: that share the server.
        operator: of the server: its load, the models' endpoint, reports.
    """

    def __init__(self, transport: TransportT) -> None:
        super().__init__(transport)
        self.agents = Agents(transport)
        self.messages = Messages(transport)
        self.turns = Turns(transport)
        self.calls = Calls(transport)
        self.working_context = WorkingContexts(transport)
        self.sections = Sections(transport)
        self.timers = Timers(transport)
        self.recall = Recall(transport)
        self.archival = Archival(transport)
        self.collections = Collections(transport)
        self.passages = CollectionPassages(transport)
        self.documents = Documents(transport)
        self.tools = Tools(transport)
        self.mcp_servers = McpServers(transport)
        self.webhooks = Webhooks(transport)
        self.keys = Keys(transport)
        self.tenants = Tenants(transport)
        self.operator = Operator(transport)

    @method
    def health(self) -> Request[Health]:
        """Whether the server answers; it does while its models load."""
        return get("/health", Health)

    @method
    def ready(self) -> Request[Readiness]:
        """Whether turns can be answered now, and what is missing if not."""
        return Request("GET", "/ready", Readiness.model_validate, answers=frozenset({503}))


class Client(Memserver[Transport]):
    """A memserver, from Python."""

    def __init__(
        self,
        url: str | Sequence[str] = DEFAULT_URL,
        *,
        api_key: str | None = None,
        timeout: float = 600,
        retries: Retries = Retries(),  # noqa: B008 - frozen
        http: httpx2.Client | None = None,
    ) -> None:
        """Make a client; it connects with its first request.

        Args:
            url: of the server; or of several over one database: where one fails, the next is asked.
            api_key: is sent as a bearer token.
            timeout: seconds for an answer; a turn may take minutes.
            retries: how often and how soon a request is sent again where that helps.
            http: a client of your own, for proxies, certificates and the like; you close it.
        """
        self._own = None if http is not None else httpx2.Client(timeout=limits_of(timeout))
        super().__init__(Transport(http or self._own, url, api_key, retries))  # type: ignore[arg-type]

    def close(self) -> None:
        """Close the connections."""
        if self._own is not None:
            self._own.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient(Memserver[AsyncTransport]):
    """A memserver, from Python with asyncio or trio: the methods of `Client`, to await."""

    def __init__(
        self,
        url: str | Sequence[str] = DEFAULT_URL,
        *,
        api_key: str | None = None,
        timeout: float = 600,
        retries: Retries = Retries(),  # noqa: B008 - frozen
        http: httpx2.AsyncClient | None = None,
    ) -> None:
        """Make a client; the arguments are those of `Client`."""
        self._own = None if http is not None else httpx2.AsyncClient(timeout=limits_of(timeout))
        super().__init__(AsyncTransport(http or self._own, url, api_key, retries))  # type: ignore[arg-type]

    async def aclose(self) -> None:
        """Close the connections."""
        if self._own is not None:
            await self._own.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
