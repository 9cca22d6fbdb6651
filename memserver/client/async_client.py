"""The client whose methods are awaited. Its tables are those of `sync_client`; a test compares them."""

from pathlib import Path
from typing import Any, Self

import httpx2

import memserver.client.agent_requests as agents
import memserver.client.archival_requests as archival
import memserver.client.call_requests as calls
import memserver.client.document_requests as documents
import memserver.client.key_requests as keys
import memserver.client.message_requests as messages
import memserver.client.section_requests as sections
import memserver.client.timer_requests as timers
import memserver.client.tool_requests as tools
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

    create = AsyncMethod(agents.create_agent)
    list = AsyncMethod(agents.list_agents)
    all = AsyncItems(agents.list_agents)
    find = AsyncMethod(agents.find_agent)
    get = AsyncMethod(agents.get_agent)
    update = AsyncMethod(agents.update_agent)
    delete = AsyncMethod(agents.delete_agent)
    context = AsyncMethod(agents.get_context)
    import_file = AsyncMethod(agents.import_agent)

    async def export(
        self, agent: Id, file: Path, *, history: bool = False, vectors: bool = False
    ) -> None:
        """Write the agent with its whole memory to a file, which has its name only when it is whole."""
        request = agents.export_agent(agent, history=history, vectors=vectors)
        await self.transport.save(request, file)


class AsyncMessages(AsyncResource):
    """Messages, and the history."""

    send = AsyncMethod(messages.send_message)
    send_event = AsyncMethod(messages.send_event)
    list = AsyncMethod(messages.list_messages)
    all = AsyncItems(messages.list_messages)
    get = AsyncMethod(messages.get_message)
    import_past = AsyncMethod(messages.import_messages)

    def stream(self, agent: Id, text: str, *, idempotency_key: str | None = None) -> AsyncStream:
        """Say something to the agent and follow the turn as events; sent with the first `next`."""
        request = messages.stream_message(agent, text, idempotency_key=idempotency_key)
        return AsyncStream(self.transport, Progress(request))


class AsyncTurns(AsyncResource):
    """Turns: what became of a message."""

    get = AsyncMethod(messages.get_turn)
    cancel = AsyncMethod(calls.cancel_turn)

    def events(self, agent: Id, turn: int, *, after: int | None = None) -> AsyncStream:
        """A turn as events, from its beginning or behind the event with the id `after`."""
        return AsyncStream(self.transport, Progress(messages.turn_events(agent, turn), after=after))


class AsyncCalls(AsyncResource):
    """Calls that wait for a person's approval, or for a result from whoever runs them."""

    list = AsyncMethod(calls.list_waiting_calls)
    all = AsyncItems(calls.list_waiting_calls)
    approve = AsyncMethod(calls.approve_call)
    deny = AsyncMethod(calls.deny_call)
    give_result = AsyncMethod(calls.give_result)

    def stream_decision(
        self,
        agent: Id,
        call: str,
        *,
        approve: bool,
        reason: str | None = None,
        idempotency_key: str | None = None,
    ) -> AsyncStream:
        """Approve or refuse a call and follow the turn as events, from the call on."""
        request = calls.stream_decision(
            agent, call, approve=approve, reason=reason, idempotency_key=idempotency_key
        )
        return AsyncStream(self.transport, Progress(request))

    def stream_result(
        self,
        agent: Id,
        call: str,
        result: Any,  # noqa: ANN401 - JSON
        *,
        failed: bool = False,
        idempotency_key: str | None = None,
    ) -> AsyncStream:
        """Give the result of a call and follow the turn as events, from the call on."""
        request = calls.stream_result(
            agent, call, result, failed=failed, idempotency_key=idempotency_key
        )
        return AsyncStream(self.transport, Progress(request))


class AsyncWorkingContexts(AsyncResource):
    """Working contexts: the sections that agents have, by the agents' names for them."""

    get = AsyncMethod(sections.get_working_context)
    section = AsyncMethod(sections.get_section)
    add = AsyncMethod(sections.add_section)
    attach = AsyncMethod(sections.attach_section)
    edit = AsyncMethod(sections.edit_section)
    detach = AsyncMethod(sections.detach_section)
    history = AsyncMethod(sections.section_history)
    all_history = AsyncItems(sections.section_history)
    undo = AsyncMethod(sections.undo_edit)
    restore = AsyncMethod(sections.restore_version)


class AsyncTimers(AsyncResource):
    """Timers, which come to an agent as events."""

    create = AsyncMethod(timers.create_timer)
    list = AsyncMethod(timers.list_timers)
    all = AsyncItems(timers.list_timers)
    delete = AsyncMethod(timers.delete_timer)


class AsyncSections(AsyncResource):
    """Sections by themselves, which agents can share."""

    create = AsyncMethod(sections.create_section)
    list = AsyncMethod(sections.list_sections)
    all = AsyncItems(sections.list_sections)
    get = AsyncMethod(sections.get_section_by_id)
    edit = AsyncMethod(sections.edit_section_by_id)
    delete = AsyncMethod(sections.delete_section)
    readers = AsyncMethod(sections.list_readers)
    all_readers = AsyncItems(sections.list_readers)
    history = AsyncMethod(sections.section_history_by_id)
    all_history = AsyncItems(sections.section_history_by_id)
    undo = AsyncMethod(sections.undo_edit_by_id)
    restore = AsyncMethod(sections.restore_version_by_id)


class AsyncRecall(AsyncResource):
    """Recall storage: everything that was said."""

    search = AsyncMethod(messages.search_recall)
    all = AsyncItems(messages.recall_matches)


class AsyncArchival(AsyncResource):
    """An agent's archival storage, and which collections it searches."""

    insert = AsyncMethod(archival.insert_archival)
    list = AsyncMethod(archival.list_archival)
    all = AsyncItems(archival.list_archival)
    search = AsyncMethod(archival.search_archival)
    get = AsyncMethod(archival.get_archival)
    delete = AsyncMethod(archival.delete_archival)
    collections = AsyncMethod(archival.agent_collections)
    all_collections = AsyncItems(archival.agent_collections)
    attach = AsyncMethod(archival.attach_collection)
    detach = AsyncMethod(archival.detach_collection)


class AsyncPassages(AsyncResource):
    """The passages of a collection."""

    insert = AsyncMethod(archival.insert_passages)
    list = AsyncMethod(archival.list_passages)
    all = AsyncItems(archival.list_passages)
    get = AsyncMethod(archival.get_passage)
    update = AsyncMethod(archival.update_passage)
    delete = AsyncMethod(archival.delete_passage)


class AsyncCollections(AsyncResource):
    """Collections of passages that agents can share."""

    create = AsyncMethod(archival.create_collection)
    list = AsyncMethod(archival.list_collections)
    all = AsyncItems(archival.list_collections)
    get = AsyncMethod(archival.get_collection)
    update = AsyncMethod(archival.update_collection)
    delete = AsyncMethod(archival.delete_collection)
    search = AsyncMethod(archival.search_collection)


class AsyncDocuments(AsyncResource):
    """Documents: files that become passages of a collection, or of an agent's own one."""

    upload = AsyncMethod(documents.upload_to_collection)
    list = AsyncMethod(documents.list_documents_of_collection)
    all = AsyncItems(documents.list_documents_of_collection)
    upload_to_agent = AsyncMethod(documents.upload_to_agent)
    list_of_agent = AsyncMethod(documents.list_documents_of_agent)
    all_of_agent = AsyncItems(documents.list_documents_of_agent)
    get = AsyncMethod(documents.get_document)
    text = AsyncMethod(documents.get_document_text)
    file = AsyncMethod(documents.get_document_file)
    cancel = AsyncMethod(documents.cancel_document)
    resume = AsyncMethod(documents.resume_document)
    delete = AsyncMethod(documents.delete_document)


class AsyncTools(AsyncResource):
    """Tools, and which of them an agent has."""

    create_webhook = AsyncMethod(tools.create_webhook)
    create_client_tool = AsyncMethod(tools.create_client_tool)
    list = AsyncMethod(tools.list_tools)
    all = AsyncItems(tools.list_tools)
    get = AsyncMethod(tools.get_tool)
    update = AsyncMethod(tools.update_tool)
    delete = AsyncMethod(tools.delete_tool)
    of_agent = AsyncMethod(tools.agent_tools)
    all_of_agent = AsyncItems(tools.agent_tools)
    attach = AsyncMethod(tools.attach_tool)
    detach = AsyncMethod(tools.detach_tool)


class AsyncMcpServers(AsyncResource):
    """MCP servers, whose tools agents can attach."""

    create = AsyncMethod(tools.create_mcp_server)
    list = AsyncMethod(tools.list_mcp_servers)
    all = AsyncItems(tools.list_mcp_servers)
    get = AsyncMethod(tools.get_mcp_server)
    refresh = AsyncMethod(tools.refresh_mcp_server)
    delete = AsyncMethod(tools.delete_mcp_server)


class AsyncKeys(AsyncResource):
    """API keys."""

    create = AsyncMethod(keys.create_key)
    list = AsyncMethod(keys.list_keys)
    all = AsyncItems(keys.list_keys)
    get = AsyncMethod(keys.get_key)
    revoke = AsyncMethod(keys.revoke_key)


class AsyncTenants(AsyncResource):
    """Tenants."""

    create = AsyncMethod(keys.create_tenant)
    list = AsyncMethod(keys.list_tenants)
    all = AsyncItems(keys.list_tenants)
    get = AsyncMethod(keys.get_tenant)


class AsyncClient(AsyncResource):
    """A memserver, from Python with asyncio or trio.

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
        keys: of the API.
        tenants: that share the server.
    """

    health = AsyncMethod(agents.health)
    ready = AsyncMethod(agents.ready)

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
        self.calls = AsyncCalls(self.transport)
        self.working_context = AsyncWorkingContexts(self.transport)
        self.sections = AsyncSections(self.transport)
        self.timers = AsyncTimers(self.transport)
        self.recall = AsyncRecall(self.transport)
        self.archival = AsyncArchival(self.transport)
        self.collections = AsyncCollections(self.transport)
        self.passages = AsyncPassages(self.transport)
        self.documents = AsyncDocuments(self.transport)
        self.tools = AsyncTools(self.transport)
        self.mcp_servers = AsyncMcpServers(self.transport)
        self.keys = AsyncKeys(self.transport)
        self.tenants = AsyncTenants(self.transport)

    async def aclose(self) -> None:
        """Close the connections."""
        if self._own is not None:
            await self._own.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
