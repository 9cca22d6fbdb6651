"""The tools of an agent that is taken in: those that there are here, and those that can be registered from a file."""

import asyncio
import secrets
from base64 import b64encode
from collections.abc import Sequence
from uuid import UUID

from memserver.agent_files.records import DefinitionRecord, ToolRecord
from memserver.agent_files.source import Note
from memserver.errors import AgentFileCorrupt, InvalidInput, NotFound
from memserver.storage import tools
from memserver.storage.database import Transaction
from memserver.storage.tools import Definition, Grant, NewDefinition
from memserver.tools.outbound.addresses import Networks, check_url
from memserver.tools.outbound.signing import SECRET_PREFIX
from memserver.tools.parameters import check_parameters
from memserver.tools.registry import ToolRegistry
from memserver.tools.signature import TOOL_NAME


class ToolGrants:
    def __init__(self, registry: ToolRegistry, networks: Networks) -> None:
        self._registry = registry
        self._networks = networks

    async def grant(
        self, tx: Transaction, tenant: str, agent_id: UUID, records: Sequence[ToolRecord]
    ) -> list[Note]:
        """Store what the agent says of its tools; what could not be carried.

        Raises:
            AgentFileCorrupt: a tool can't be as the file says.
        """
        notes: list[Note] = []
        for record in records:
            definition, reason, usable = None, "", True
            if self._registry.server_tool(record.name) is not None:
                if record.definition is not None:
                    reason = "The server's own tool of this name takes its place."
            elif record.definition is None:
                # It may be one of an MCP server that can't be reached now.
                if record.attached:
                    reason = "The server has no such tool now; it is used if it comes."
            else:
                definition, reason = await self._define(tx, tenant, record.name, record.definition)
                usable = definition is not None
            if reason:
                notes.append(Note("tool", record.name, reason))
            if usable:
                rules = record.model_dump(exclude={"definition"})
                await tools.grant(tx, tenant, agent_id, Grant(**rules, definition=definition))
        return notes

    async def _define(
        self, tx: Transaction, tenant: str, name: str, wanted: DefinitionRecord
    ) -> tuple[Definition | None, str]:
        """The tool that is registered under this name, now if it can be; and what is to be noted of it."""
        try:
            there = await tools.get(tx, name)
        except NotFound:
            return await self._register(tx, tenant, name, wanted)
        same = all(
            getattr(there, field) == getattr(wanted, field)
            for field in ("kind", "description", "parameters", "url")
        )
        return there, "" if same else "The tool that is registered here under this name is used."

    async def _register(
        self, tx: Transaction, tenant: str, name: str, wanted: DefinitionRecord
    ) -> tuple[Definition | None, str]:
        if wanted.kind == "mcp":
            server = wanted.mcp_server or ""
            return None, f"It is of the MCP server {server!r}: register that, and attach it."
        if not TOOL_NAME.fullmatch(name):
            raise AgentFileCorrupt(f"tools.jsonl: {name!r} is no name of a tool.")
        url = secret = None
        reason = ""
        try:
            parameters = await asyncio.to_thread(check_parameters, wanted.parameters)
            if wanted.kind == "webhook":
                url = wanted.url
                check_url(url or "", self._networks)
                secret = f"{SECRET_PREFIX}{b64encode(secrets.token_bytes(32)).decode()}"
                reason = "Its secret is a new one: PATCH /v1/tools/{name} sets yours."
        except InvalidInput as error:
            return None, f"It can't be registered here: {error.message}"
        new = NewDefinition(
            name,
            wanted.kind,
            wanted.description,
            parameters,
            timeout=wanted.timeout,
            url=url,
            secret=secret,
            retries=wanted.retries,
        )
        return await tools.create(tx, tenant, new), reason
