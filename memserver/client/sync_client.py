"""The client whose methods wait. Its tables are those of `async_client`; a test compares them."""

from typing import Self

import httpx2

from memserver.client import agent_requests as agent
from memserver.client import memory_requests as memory
from memserver.client.address import DEFAULT_URL, limits_of
from memserver.client.blocking import Items, Method, Resource, Stream, Transport
from memserver.client.progress import Progress
from memserver.client.requests import Id
from memserver.client.retries import Retries


class Agents(Resource):
    """Agents, and what their prompts hold."""

    create = Method(agent.create_agent)
    list = Method(agent.list_agents)
    all = Items(agent.list_agents)
    find = Method(agent.find_agent)
    get = Method(agent.get_agent)
    update = Method(agent.update_agent)
    delete = Method(agent.delete_agent)
    context = Method(agent.get_context)


class Messages(Resource):
    """Messages, and the history."""

    send = Method(agent.send_message)
    list = Method(agent.list_messages)
    all = Items(agent.list_messages)
    import_past = Method(agent.import_messages)

    def stream(self, agent_id: Id, text: str, *, idempotency_key: str | None = None) -> Stream:
        """Say something to the agent and follow the turn as events; sent with the first `next`."""
        request = agent.stream_message(agent_id, text, idempotency_key=idempotency_key)
        return Stream(self.transport, Progress(request))


class Turns(Resource):
    """Turns: what became of a message."""

    get = Method(agent.get_turn)

    def events(self, agent_id: Id, turn: int, *, after: int | None = None) -> Stream:
        """A turn as events, from its beginning or behind the event with the id `after`."""
        return Stream(self.transport, Progress(agent.turn_events(agent_id, turn), after=after))


class WorkingContexts(Resource):
    """Working contexts."""

    get = Method(memory.get_working_context)
    edit = Method(memory.edit_section)


class Recall(Resource):
    """Recall storage: everything that was said."""

    search = Method(memory.search_recall)


class Archival(Resource):
    """An agent's archival storage, and which collections it searches."""

    insert = Method(memory.insert_archival)
    list = Method(memory.list_archival)
    all = Items(memory.list_archival)
    search = Method(memory.search_archival)
    delete = Method(memory.delete_archival)
    collections = Method(memory.agent_collections)
    attach = Method(memory.attach_collection)
    detach = Method(memory.detach_collection)


class Passages(Resource):
    """The passages of a collection."""

    insert = Method(memory.insert_passages)
    list = Method(memory.list_passages)
    all = Items(memory.list_passages)
    get = Method(memory.get_passage)
    update = Method(memory.update_passage)
    delete = Method(memory.delete_passage)


class Collections(Resource):
    """Collections of passages that agents can share."""

    create = Method(memory.create_collection)
    list = Method(memory.list_collections)
    all = Items(memory.list_collections)
    get = Method(memory.get_collection)
    update = Method(memory.update_collection)
    delete = Method(memory.delete_collection)
    search = Method(memory.search_collection)


class Client(Resource):
    """A memserver, from Python.

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

    health = Method(agent.health)
    ready = Method(agent.ready)

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        timeout: float = 600,
        retries: Retries = Retries(),  # noqa: B008 - frozen
        http: httpx2.Client | None = None,
    ) -> None:
        """Make a client; it connects with its first request.

        Args:
            url: of the server.
            api_key: is sent as a bearer token.
            timeout: seconds for an answer; a turn may take minutes.
            retries: how often and how soon a request is sent again where that helps.
            http: a client of your own, for proxies, certificates and the like; you close it.
        """
        self._own = httpx2.Client(timeout=limits_of(timeout)) if http is None else None
        super().__init__(Transport(http or self._own, url, api_key, retries))  # type: ignore[arg-type]
        self.agents = Agents(self.transport)
        self.messages = Messages(self.transport)
        self.turns = Turns(self.transport)
        self.working_context = WorkingContexts(self.transport)
        self.recall = Recall(self.transport)
        self.archival = Archival(self.transport)
        self.collections = Collections(self.transport)
        self.passages = Passages(self.transport)

    def close(self) -> None:
        """Close the connections."""
        if self._own is not None:
            self._own.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
