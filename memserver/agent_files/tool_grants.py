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
from memserver.tools.signature import TOOL_NAME
from memserver.tools.toolbox import Toolbox


class ToolGrants:
    def __init__(self, toolbox: Toolbox, networks: Networks) -> None:
        self._toolbox = toolbox
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
            rules = record.model_dump(exclude={"definition"})
            if self._toolbox.server_tool(record.name) is not None:
                if record.definition is not None:
                    notes.append(
                        _note(record, "The server's own tool of this name takes its place.")
                    )
                await tools.grant(tx, tenant, agent_id, Grant(**rules))
            elif record.definition is None:
                # It may be one of an MCP server that can't be reached now.
                await tools.grant(tx, tenant, agent_id, Grant(**rules))
                if record.attached:
                    notes.append(
                        _note(record, "The server has no such tool now; it is used if it comes.")
                    )
            else:
                found = await self._definition(tx, tenant, record, record.definition, notes)
                if found is not None:
                    await tools.grant(tx, tenant, agent_id, Grant(**rules, definition=found))
        return notes

    async def _definition(
        self,
        tx: Transaction,
        tenant: str,
        record: ToolRecord,
        definition: DefinitionRecord,
        notes: list[Note],
    ) -> Definition | None:
        try:
            there = await tools.get(tx, record.name)
        except NotFound:
            return await self._register(tx, tenant, record, definition, notes)
        same = (there.kind, there.description, there.parameters, there.url) == (
            definition.kind,
            definition.description,
            definition.parameters,
            definition.url,
        )
        if not same:
            notes.append(_note(record, "The tool that is registered here under this name is used."))
        return there

    async def _register(
        self,
        tx: Transaction,
        tenant: str,
        record: ToolRecord,
        definition: DefinitionRecord,
        notes: list[Note],
    ) -> Definition | None:
        if definition.kind == "mcp":
            server = definition.mcp_server or ""
            notes.append(
                _note(record, f"It is of the MCP server {server!r}: register that, and attach it.")
            )
            return None
        secret = None
        try:
            if not TOOL_NAME.fullmatch(record.name):
                raise AgentFileCorrupt(f"tools.jsonl: {record.name!r} is no name of a tool.")
            parameters = await asyncio.to_thread(check_parameters, definition.parameters)
            if definition.kind == "webhook":
                check_url(definition.url or "", self._networks)
                secret = f"{SECRET_PREFIX}{b64encode(secrets.token_bytes(32)).decode()}"
                notes.append(
                    _note(record, "Its secret is a new one: PATCH /v1/tools/{name} sets yours.")
                )
        except InvalidInput as error:
            notes.append(_note(record, f"It can't be registered here: {error.message}"))
            return None
        new = NewDefinition(
            record.name,
            definition.kind,
            definition.description,
            parameters,
            timeout=definition.timeout,
            url=definition.url if definition.kind == "webhook" else None,
            secret=secret,
            retries=definition.retries,
        )
        return await tools.create(tx, tenant, new)


def _note(record: ToolRecord, reason: str) -> Note:
    return Note("tool", record.name, reason)
