"""An agent as a file, in bounded memory: pages of rows become pieces of the file.

What is short is read at one moment. The lists that may be long are read page by page, each page in a transaction
of its own, so that nobody who reads slowly holds a connection: turns that have ended, with their messages, don't
change any more. Passages may be added or deleted meanwhile; each is as it was when its page was read.
"""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import memserver
from memserver.agent.dependencies import utc_now
from memserver.agent_files import statements
from memserver.agent_files.archive import AGENT, ArchiveWriter
from memserver.agent_files.float16 import pack_float16
from memserver.agent_files.records import (
    FORMAT,
    LISTS,
    MANIFEST,
    VERSION,
    AgentRecord,
    CallPart,
    DefinitionRecord,
    Manifest,
    State,
    Vectors,
)
from memserver.agent_files.statements import PAGES, Rows, Whole
from memserver.errors import NotFound
from memserver.storage.database import Database

PAGE = 200
"""Rows of a page: what an export holds in memory."""
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Contents:
    """What a file has beside what it always has: every version of the working context; vectors."""

    history: bool = False
    vectors: bool = False


class Export:
    def __init__(self, database: Database, tenant: str, whole: Whole, contents: Contents) -> None:
        self._database = database
        self._tenant = tenant
        self._whole = whole
        self._contents = contents
        self._writer = ArchiveWriter()
        self.name: str = whole.agent["name"]

    @classmethod
    async def begin(
        cls, database: Database, tenant: str, agent_id: UUID, contents: Contents
    ) -> "Export":
        """Look at the agent. Raises NotFound."""
        async with database.snapshot(tenant) as tx:
            return cls(database, tenant, await statements.read_whole(tx, agent_id), contents)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The file, piece by piece. Raises NotFound: the agent was deleted meanwhile; the file has no end then."""
        yield self._writer.add(MANIFEST, self._manifest())
        yield self._writer.add(AGENT, _agent(self._whole))
        for name in LISTS:
            self._writer.begin(name)
            async for rows in self._rows(name):
                yield await asyncio.to_thread(self._write, name, rows)
        async with self._database.tenant(self._tenant) as tx:
            if not await statements.is_there(tx, self._whole.agent["id"]):
                raise NotFound(
                    "The agent was deleted while it was exported.",
                    hint="There is nothing to export.",
                )
        yield self._writer.end()

    def _write(self, name: str, rows: Rows) -> bytes:
        """In a thread: the event loop would stand still while records become JSON."""
        kind, change = LISTS[name], _CHANGES.get(name, dict)
        changed = (change(row) for row in rows)
        return self._writer.write(
            [
                kind.model_validate(
                    {key: row[key] for key in kind.model_fields.keys() & row.keys()}
                )
                for row in changed
            ]
        )

    async def _rows(self, name: str) -> AsyncIterator[Rows]:
        agent = self._whole.agent
        match name:
            case "sections":
                yield self._whole.sections
            case "tools":
                yield self._whole.tools
            case "edits":
                for section in self._whole.sections:
                    newest = section["version"]
                    oldest = 1 if self._contents.history else newest
                    only = {"section_id": section["id"], "oldest": oldest, "newest": newest}
                    async for rows in self._pages(name, only):
                        own = {"section": section["name"]}
                        yield [
                            {**row, **own, "own": row["agent_id"] == agent["id"]} for row in rows
                        ]
            case _:
                of_agent = {
                    "agent_id": agent["id"],
                    "collection_id": agent["collection_id"],
                    "end": self._whole.end,
                    "done_turn": self._whole.state["done_turn"],
                }
                async for rows in self._pages(name, of_agent):
                    yield rows

    async def _pages(self, name: str, values: Row) -> AsyncIterator[Rows]:
        vectors = self._contents.vectors and name == "passages"
        table = self._whole.agent["vectors_table"] if vectors else None
        after = PAGES[name].first
        while True:
            page = {**values, "after": after, "limit": PAGE}
            async with self._database.tenant(self._tenant) as tx:
                rows = await statements.read_page(tx, name, page, vectors_table=table)
            if rows:
                yield rows
            if not rows or (len(rows) < PAGE and name != "pictures"):
                return
            after = rows[-1][PAGES[name].key]

    def _manifest(self) -> Manifest:
        agent = self._whole.agent
        return Manifest(
            format=FORMAT,
            version=VERSION,
            made_by=f"memserver {memserver.__version__}",
            exported_at=utc_now(),
            vectors=Vectors(model=agent["embedding_model"], dimension=agent["dimension"])
            if self._contents.vectors
            else None,
        )


def _agent(whole: Whole) -> AgentRecord:
    fields = AgentRecord.model_fields.keys() - {"state", "collections"}
    state = {**whole.state, "queue_start": min(whole.state["queue_start"], whole.end)}
    return AgentRecord(
        **{name: whole.agent[name] for name in fields},
        collections=whole.collections,
        state=State(**state),
    )


def _change_tool(row: Row) -> Row:
    own = {name: row[name] for name in DefinitionRecord.model_fields}
    return {**row, "definition": own if row["kind"] else None}


def _change_message(row: Row) -> Row:
    call = {name: row[name] for name in CallPart.model_fields.keys() & row.keys()}
    call |= {"id": row["call_id"], "created_at": row["called_at"]}
    return {**row, "call": None if row["call_id"] is None else call}


def _change_passage(row: Row) -> Row:
    vector = row.get("vector")
    packed = None if vector is None else b64encode(pack_float16(vector.to_list())).decode()
    return {**row, "vector": packed}


def _change_picture(row: Row) -> Row:
    return {**row, "data": b64encode(row["data"]).decode()}


_CHANGES = {
    "pictures": _change_picture,
    "tools": _change_tool,
    "messages": _change_message,
    "passages": _change_passage,
}
"""How rows become records where their columns are not simply the fields."""
