"""The client whose methods wait. Its tables are those of `async_client`; a test compares them."""

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
from memserver.client.blocking import Items, Method, Resource, Stream, Transport
from memserver.client.progress import Progress
from memserver.client.requests import Id
from memserver.client.retries import Retries


class Agents(Resource):
    """Agents, and what their prompts hold."""

    create = Method(agents.create_agent)
    list = Method(agents.list_agents)
    all = Items(agents.list_agents)
    find = Method(agents.find_agent)
    get = Method(agents.get_agent)
    update = Method(agents.update_agent)
    delete = Method(agents.delete_agent)
    context = Method(agents.get_context)
    import_file = Method(agents.import_agent)

    def export(
        self, agent: Id, file: Path, *, history: bool = False, vectors: bool = False
    ) -> None:
        """Write the agent with its whole memory to a file, which has its name only when it is whole."""
        request = agents.export_agent(agent, history=history, vectors=vectors)
        self.transport.save(request, file)


class Messages(Resource):
    """Messages, and the history."""

    send = Method(messages.send_message)
    send_event = Method(messages.send_event)
    list = Method(messages.list_messages)
    all = Items(messages.list_messages)
    get = Method(messages.get_message)
    import_past = Method(messages.import_messages)

    def stream(self, agent: Id, text: str, *, idempotency_key: str | None = None) -> Stream:
        """Say something to the agent and follow the turn as events; sent with the first `next`."""
        request = messages.stream_message(agent, text, idempotency_key=idempotency_key)
        return Stream(self.transport, Progress(request))


class Turns(Resource):
    """Turns: what became of a message."""

    get = Method(messages.get_turn)
    cancel = Method(calls.cancel_turn)

    def events(self, agent: Id, turn: int, *, after: int | None = None) -> Stream:
        """A turn as events, from its beginning or behind the event with the id `after`."""
        return Stream(self.transport, Progress(messages.turn_events(agent, turn), after=after))


class Calls(Resource):
    """Calls that wait for a person's approval, or for a result from whoever runs them."""

    list = Method(calls.list_waiting_calls)
    all = Items(calls.list_waiting_calls)
    approve = Method(calls.approve_call)
    deny = Method(calls.deny_call)
    give_result = Method(calls.give_result)

    def stream_decision(
        self,
        agent: Id,
        call: str,
        *,
        approve: bool,
        reason: str | None = None,
        idempotency_key: str | None = None,
    ) -> Stream:
        """Approve or refuse a call and follow the turn as events, from the call on."""
        request = calls.stream_decision(
            agent, call, approve=approve, reason=reason, idempotency_key=idempotency_key
        )
        return Stream(self.transport, Progress(request))

    def stream_result(
        self,
        agent: Id,
        call: str,
        result: Any,  # noqa: ANN401 - JSON
        *,
        failed: bool = False,
        idempotency_key: str | None = None,
    ) -> Stream:
        """Give the result of a call and follow the turn as events, from the call on."""
        request = calls.stream_result(
            agent, call, result, failed=failed, idempotency_key=idempotency_key
        )
        return Stream(self.transport, Progress(request))


class WorkingContexts(Resource):
    """Working contexts: the sections that agents have, by the agents' names for them."""

    get = Method(sections.get_working_context)
    section = Method(sections.get_section)
    add = Method(sections.add_section)
    attach = Method(sections.attach_section)
    edit = Method(sections.edit_section)
    detach = Method(sections.detach_section)
    history = Method(sections.section_history)
    all_history = Items(sections.section_history)
    undo = Method(sections.undo_edit)
    restore = Method(sections.restore_version)


class Timers(Resource):
    """Timers, which come to an agent as events."""

    create = Method(timers.create_timer)
    list = Method(timers.list_timers)
    all = Items(timers.list_timers)
    delete = Method(timers.delete_timer)


class Sections(Resource):
    """Sections by themselves, which agents can share."""

    create = Method(sections.create_section)
    list = Method(sections.list_sections)
    all = Items(sections.list_sections)
    get = Method(sections.get_section_by_id)
    edit = Method(sections.edit_section_by_id)
    delete = Method(sections.delete_section)
    readers = Method(sections.list_readers)
    all_readers = Items(sections.list_readers)
    history = Method(sections.section_history_by_id)
    all_history = Items(sections.section_history_by_id)
    undo = Method(sections.undo_edit_by_id)
    restore = Method(sections.restore_version_by_id)


class Recall(Resource):
    """Recall storage: everything that was said."""

    search = Method(messages.search_recall)
    all = Items(messages.recall_matches)


class Archival(Resource):
    """An agent's archival storage, and which collections it searches."""

    insert = Method(archival.insert_archival)
    list = Method(archival.list_archival)
    all = Items(archival.list_archival)
    search = Method(archival.search_archival)
    get = Method(archival.get_archival)
    delete = Method(archival.delete_archival)
    collections = Method(archival.agent_collections)
    all_collections = Items(archival.agent_collections)
    attach = Method(archival.attach_collection)
    detach = Method(archival.detach_collection)


class Passages(Resource):
    """The passages of a collection."""

    insert = Method(archival.insert_passages)
    list = Method(archival.list_passages)
    all = Items(archival.list_passages)
    get = Method(archival.get_passage)
    update = Method(archival.update_passage)
    delete = Method(archival.delete_passage)


class Collections(Resource):
    """Collections of passages that agents can share."""

    create = Method(archival.create_collection)
    list = Method(archival.list_collections)
    all = Items(archival.list_collections)
    get = Method(archival.get_collection)
    update = Method(archival.update_collection)
    delete = Method(archival.delete_collection)
    search = Method(archival.search_collection)


class Documents(Resource):
    """Documents: files that become passages of a collection, or of an agent's own one."""

    upload = Method(documents.upload_to_collection)
    list = Method(documents.list_documents_of_collection)
    all = Items(documents.list_documents_of_collection)
    upload_to_agent = Method(documents.upload_to_agent)
    list_of_agent = Method(documents.list_documents_of_agent)
    all_of_agent = Items(documents.list_documents_of_agent)
    get = Method(documents.get_document)
    text = Method(documents.get_document_text)
    file = Method(documents.get_document_file)
    cancel = Method(documents.cancel_document)
    resume = Method(documents.resume_document)
    delete = Method(documents.delete_document)


class Tools(Resource):
    """Tools, and which of them an agent has."""

    create_webhook = Method(tools.create_webhook)
    create_client_tool = Method(tools.create_client_tool)
    list = Method(tools.list_tools)
    all = Items(tools.list_tools)
    get = Method(tools.get_tool)
    update = Method(tools.update_tool)
    delete = Method(tools.delete_tool)
    of_agent = Method(tools.agent_tools)
    all_of_agent = Items(tools.agent_tools)
    attach = Method(tools.attach_tool)
    detach = Method(tools.detach_tool)


class McpServers(Resource):
    """MCP servers, whose tools agents can attach."""

    create = Method(tools.create_mcp_server)
    list = Method(tools.list_mcp_servers)
    all = Items(tools.list_mcp_servers)
    get = Method(tools.get_mcp_server)
    refresh = Method(tools.refresh_mcp_server)
    delete = Method(tools.delete_mcp_server)


class Keys(Resource):
    """API keys."""

    create = Method(keys.create_key)
    list = Method(keys.list_keys)
    all = Items(keys.list_keys)
    get = Method(keys.get_key)
    revoke = Method(keys.revoke_key)


class Tenants(Resource):
    """Tenants."""

    create = Method(keys.create_tenant)
    list = Method(keys.list_tenants)
    all = Items(keys.list_tenants)
    get = Method(keys.get_tenant)


class Client(Resource):
    """A memserver, from Python.

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

    health = Method(agents.health)
    ready = Method(agents.ready)

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
        self.calls = Calls(self.transport)
        self.working_context = WorkingContexts(self.transport)
        self.sections = Sections(self.transport)
        self.timers = Timers(self.transport)
        self.recall = Recall(self.transport)
        self.archival = Archival(self.transport)
        self.collections = Collections(self.transport)
        self.passages = Passages(self.transport)
        self.documents = Documents(self.transport)
        self.tools = Tools(self.transport)
        self.mcp_servers = McpServers(self.transport)
        self.keys = Keys(self.transport)
        self.tenants = Tenants(self.transport)

    def close(self) -> None:
        """Close the connections."""
        if self._own is not None:
            self._own.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
