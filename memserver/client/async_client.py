"""The client whose methods are awaited. Its tables are those of `sync_client`; a test compares them."""

from typing import Self

import httpx2

from memserver.client import agent_requests as agent
from memserver.client import memory_requests as memory
from memserver.client.address import DEFAULT_URL, limits_of
from memserver.client.awaiting import (
    AsyncItems,
    AsyncMethod,
    AsyncResource,
    AsyncStream,
    AsyncTransport,
)
from memserver.client.progress import Progress
from memserver.client.requests import Id
from memserver.client.retries import Retries


class AsyncAgents(AsyncResource):
    """Agents, and what their prompts hold."""

    create = AsyncMethod(agent.create_agent)
    list = AsyncMethod(agent.list_agents)
    all = AsyncItems(agent.list_agents)
    find = AsyncMethod(agent.find_agent)
    get = AsyncMethod(agent.get_agent)
    update = AsyncMethod(agent.update_agent)
    delete = AsyncMethod(agent.delete_agent)
    context = AsyncMethod(agent.get_context)


class AsyncMessages(AsyncResource):
    """Messages, and the history."""

    send = AsyncMethod(agent.send_message)
    list = AsyncMethod(agent.list_messages)
    all = AsyncItems(agent.list_messages)
    import_past = AsyncMethod(agent.import_messages)

    def stream(self, agent_id: Id, text: str, *, idempotency_key: str | None = None) -> AsyncStream:
        """Say something to the agent and follow the turn as events; sent with the first `next`."""
        request = agent.stream_message(agent_id, text, idempotency_key=idempotency_key)
        return AsyncStream(self.transport, Progress(request))


class AsyncTurns(AsyncResource):
    """Turns: what became of a message."""

    get = AsyncMethod(agent.get_turn)

    def events(self, agent_id: Id, turn: int, *, after: int | None = None) -> AsyncStream:
        """A turn as events, from its beginning or behind the event with the id `after`."""
        return AsyncStream(self.transport, Progress(agent.turn_events(agent_id, turn), after=after))


class AsyncWorkingContexts(AsyncResource):
    """Working contexts."""

    get = AsyncMethod(memory.get_working_context)
    edit = AsyncMethod(memory.edit_section)


class AsyncRecall(AsyncResource):
    """Recall storage: everything that was said."""

    search = AsyncMethod(memory.search_recall)


class AsyncArchival(AsyncResource):
    """An agent's archival storage, and which collections it searches."""

    insert = AsyncMethod(memory.insert_archival)
    list = AsyncMethod(memory.list_archival)
    all = AsyncItems(memory.list_archival)
    search = AsyncMethod(memory.search_archival)
    delete = AsyncMethod(memory.delete_archival)
    collections = AsyncMethod(memory.agent_collections)
    attach = AsyncMethod(memory.attach_collection)
    detach = AsyncMethod(memory.detach_collection)


class AsyncPassages(AsyncResource):
    """The passages of a collection."""

    insert = AsyncMethod(memory.insert_passages)
    list = AsyncMethod(memory.list_passages)
    all = AsyncItems(memory.list_passages)
    get = AsyncMethod(memory.get_passage)
    update = AsyncMethod(memory.update_passage)
    delete = AsyncMethod(memory.delete_passage)


class AsyncCollections(AsyncResource):
    """Collections of passages that agents can share."""

    create = AsyncMethod(memory.create_collection)
    list = AsyncMethod(memory.list_collections)
    all = AsyncItems(memory.list_collections)
    get = AsyncMethod(memory.get_collection)
    update = AsyncMethod(memory.update_collection)
    delete = AsyncMethod(memory.delete_collection)
    search = AsyncMethod(memory.search_collection)


class AsyncClient(AsyncResource):
    """A memserver, from Python with asyncio or trio.

    Attributes:
        agents: and what their prompts hold.
        messages: and the history.
        turns: what became of a message.
        working_context: of an agent.
        recall: everything that was said.
        archival: an agent's passages, and which collections it searches.
        collections: that agents can share.
        passages: of a collection.
    """

    health = AsyncMethod(agent.health)
    ready = AsyncMethod(agent.ready)

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        timeout: float = 600,
        retries: Retries = Retries(),  # noqa: B008 - frozen
        http: httpx2.AsyncClient | None = None,
    ) -> None:
        """Make a client; it connects with its first request.

        Args:
            url: of the server.
            api_key: is sent as a bearer token.
            timeout: seconds for an answer; a turn may take minutes.
            retries: how often and how soon a request is sent again where that helps.
            http: a client of your own, for proxies, certificates and the like; you close it.
        """
        self._own = httpx2.AsyncClient(timeout=limits_of(timeout)) if http is None else None
        super().__init__(AsyncTransport(http or self._own, url, api_key, retries))  # type: ignore[arg-type]
        self.agents = AsyncAgents(self.transport)
        self.messages = AsyncMessages(self.transport)
        self.turns = AsyncTurns(self.transport)
        self.working_context = AsyncWorkingContexts(self.transport)
        self.recall = AsyncRecall(self.transport)
        self.archival = AsyncArchival(self.transport)
        self.collections = AsyncCollections(self.transport)
        self.passages = AsyncPassages(self.transport)

    async def aclose(self) -> None:
        """Close the connections."""
        if self._own is not None:
            await self._own.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
