"""An agent as a file, of one moment and in bounded memory: pages of rows become pieces of the file.

All is read in one snapshot of the database, as fast as it comes, into a file on disk; the client gets that at its own
pace meanwhile, so that nobody who reads slowly holds a connection.
"""

import asyncio
import os
import tempfile
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import IO, Any
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
from memserver.storage.database import Database, Transaction

PAGE = 200
"""Rows of a page: what an export holds in memory."""
PIECE = 65_536
"""Bytes."""
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Contents:
    """What a file has beside what it always has: every version of the working context; vectors."""

    history: bool = False
    vectors: bool = False


class Export:
    """The export of an agent; `contents` is what the file has.

    `at_once` lets only so many exports read, since each has a connection of the pool to itself meanwhile.
    """

    def __init__(
        self,
        database: Database,
        tenant: str,
        agent_id: UUID,
        contents: Contents,
        at_once: asyncio.Semaphore,
    ) -> None:
        self._database = database
        self._tenant = tenant
        self._agent_id = agent_id
        self._contents = contents
        self._at_once = at_once
        self._writer = ArchiveWriter()
        self._written = 0
        self._more = asyncio.Event()

    async def pieces(self) -> AsyncIterator[bytes]:
        """The file, piece by piece. Raises NotFound: there is no such agent; the file has no end then."""
        with tempfile.TemporaryFile() as spool:
            reading = asyncio.create_task(self._read(spool))
            reading.add_done_callback(lambda _: self._more.set())
            try:
                sent, ended = 0, False
                while not ended:
                    await self._more.wait()
                    self._more.clear()
                    ended = reading.done()
                    while sent < self._written:
                        piece = await asyncio.to_thread(os.pread, spool.fileno(), PIECE, sent)
                        sent += len(piece)
                        yield piece
                await reading
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, spool: IO[bytes]) -> None:
        async with self._at_once, self._database.snapshot(self._tenant) as tx:
            whole = await statements.read_whole(tx, self._agent_id)
            self._keep(spool, self._writer.add(MANIFEST, self._manifest(whole)))
            self._keep(spool, self._writer.add(AGENT, _agent(whole)))
            for name in LISTS:
                self._writer.begin(name)
                async for rows in self._rows(tx, whole, name):
                    await asyncio.to_thread(self._write, spool, name, rows)
                    self._more.set()
            self._keep(spool, self._writer.end())

    def _keep(self, spool: IO[bytes], piece: bytes) -> None:
        self._written += spool.write(piece)
        spool.flush()

    def _write(self, spool: IO[bytes], name: str, rows: Rows) -> None:
        """In a thread: the event loop would stand still while records become JSON."""
        kind, change = LISTS[name], _CHANGES.get(name, dict)
        changed = (change(row) for row in rows)
        records = [
            kind.model_validate({key: row[key] for key in kind.model_fields.keys() & row.keys()})
            for row in changed
        ]
        self._keep(spool, self._writer.write(records))

    async def _rows(self, tx: Transaction, whole: Whole, name: str) -> AsyncIterator[Rows]:
        agent = whole.agent
        match name:
            case "sections":
                yield whole.sections
            case "tools":
                yield whole.tools
            case "edits":
                for section in whole.sections:
                    newest = section["version"]
                    oldest = 1 if self._contents.history else newest
                    only = {"section_id": section["id"], "oldest": oldest, "newest": newest}
                    async for rows in _pages(tx, name, only):
                        own = {"section": section["name"]}
                        yield [
                            {**row, **own, "own": row["agent_id"] == agent["id"]} for row in rows
                        ]
            case _:
                of_agent = {
                    "agent_id": agent["id"],
                    "collection_id": agent["collection_id"],
                    "end": whole.end,
                    "done_turn": whole.state["done_turn"],
                }
                vectors = self._contents.vectors and name == "passages"
                table = agent["vectors_table"] if vectors else None
                async for rows in _pages(tx, name, of_agent, table):
                    yield rows

    def _manifest(self, whole: Whole) -> Manifest:
        agent = whole.agent
        return Manifest(
            format=FORMAT,
            version=VERSION,
            made_by=f"memserver {memserver.__version__}",
            exported_at=utc_now(),
            vectors=Vectors(model=agent["embedding_model"], dimension=agent["dimension"])
            if self._contents.vectors
            else None,
        )


async def _pages(
    tx: Transaction, name: str, values: Row, vectors_table: str | None = None
) -> AsyncIterator[Rows]:
    after = PAGES[name].first
    while True:
        page = {**values, "after": after, "limit": PAGE}
        rows = await statements.read_page(tx, name, page, vectors_table=vectors_table)
        if rows:
            yield rows
        if not rows or (len(rows) < PAGE and name != "pictures"):
            return
        after = rows[-1][PAGES[name].key]


def _agent(whole: Whole) -> AgentRecord:
    fields = AgentRecord.model_fields.keys() - {"state", "collections"}
    state = whole.state
    if state["queue_start"] > whole.end:  # a turn that runs has evicted messages of its own
        state = {**state, "queue_start": state["summarised"]}
    return AgentRecord(
        **{name: whole.agent[name] for name in fields},
        collections=whole.collections,
        state=State(**{name: state[name] for name in State.model_fields}),
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
