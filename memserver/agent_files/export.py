"""An agent as a file, in bounded memory: pages of rows become pieces of the file.

What is short is read at one moment. The lists that may be long are read page by page, each page in a transaction
of its own, so that nobody who reads slowly holds a connection: turns that have ended, with their messages, don't
change any more. Passages may be added or deleted meanwhile; each is as it was when its page was read.
"""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
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
    MANIFEST,
    VERSION,
    AgentRecord,
    CallPart,
    DefinitionRecord,
    EditRecord,
    Manifest,
    MessageRecord,
    PassageRecord,
    Record,
    SectionRecord,
    State,
    SummaryRecord,
    ToolRecord,
    TurnRecord,
    Vectors,
)
from memserver.agent_files.statements import Rows, Whole
from memserver.errors import NotFound
from memserver.storage.database import Database, Transaction

PAGE = 200
"""Rows of a page: what an export holds in memory."""
NO_ID = UUID(int=0)
Row = Mapping[str, Any]
_Page = Callable[[Transaction, Any], Awaitable[Rows]]


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
        """The file, piece by piece.

        Raises:
            NotFound: the agent was deleted meanwhile; the file has no end then.
        """
        whole, agent_id = self._whole, self._whole.agent["id"]
        yield self._writer.add(MANIFEST, self._manifest())
        yield self._writer.add(AGENT, _agent(whole))
        self._writer.begin("sections")
        yield self._writer.write([_section(row) for row in whole.sections])
        self._writer.begin("edits")
        for section in whole.sections:
            async for piece in self._edits(section):
                yield piece
        self._writer.begin("tools")
        yield self._writer.write([_tool(row) for row in whole.tools])
        end = whole.end
        lists: list[tuple[str, _Page, str, Any, Callable[[Row], Record]]] = [
            (
                "summaries",
                lambda tx, after: statements.summaries_page(
                    tx, agent_id, after=after, end=end, limit=PAGE
                ),
                "until",
                -1,
                SummaryRecord.model_validate,
            ),
            (
                "turns",
                lambda tx, after: statements.turns_page(
                    tx, agent_id, after=after, end=end, limit=PAGE
                ),
                "turn",
                0,
                TurnRecord.model_validate,
            ),
            (
                "messages",
                lambda tx, after: statements.messages_page(
                    tx, agent_id, after=after, end=end, limit=PAGE
                ),
                "position",
                -1,
                _message,
            ),
            ("passages", self._passages_page, "id", NO_ID, _passage),
        ]
        for name, page, key, first, read in lists:
            self._writer.begin(name)
            async for rows in self._pages(page, key, first):
                yield await asyncio.to_thread(self._write, rows, read)
        async with self._database.tenant(self._tenant) as tx:
            if not await statements.is_there(tx, agent_id):
                raise NotFound(
                    "The agent was deleted while it was exported.",
                    hint="There is nothing to export.",
                )
        yield self._writer.end()

    def _write(self, rows: Rows, read: Callable[[Row], Record]) -> bytes:
        return self._writer.write([read(row) for row in rows])

    async def _edits(self, section: Row) -> AsyncIterator[bytes]:
        newest = not self._contents.history

        async def page(tx: Transaction, after: int) -> Rows:
            return await statements.edits_page(tx, section, after=after, limit=PAGE, newest=newest)

        async for rows in self._pages(page, "version", 0):
            yield self._writer.write([self._edit(section["name"], row) for row in rows])

    async def _pages(self, page: _Page, key: str, after: Any) -> AsyncIterator[Rows]:  # noqa: ANN401
        while True:
            async with self._database.tenant(self._tenant) as tx:
                rows = await page(tx, after)
            if rows:
                yield rows
            if len(rows) < PAGE:
                return
            after = rows[-1][key]

    async def _passages_page(self, tx: Transaction, after: UUID) -> Rows:
        agent = self._whole.agent
        table = agent["vectors_table"] if self._contents.vectors else None
        return await statements.passages_page(
            tx, agent["collection_id"], after=after, limit=PAGE, vectors_table=table
        )

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

    def _edit(self, section: str, row: Row) -> EditRecord:
        return EditRecord(
            section=section,
            version=row["version"],
            text=row["content"],
            actor=row["actor"],
            own=row["agent_id"] == self._whole.agent["id"],
            position=row["position"],
            restores=row["restores"],
            created_at=row["created_at"],
        )


def _agent(whole: Whole) -> AgentRecord:
    fields = AgentRecord.model_fields.keys() - {"state", "collections"}
    state = {**whole.state, "queue_start": min(whole.state["queue_start"], whole.end)}
    return AgentRecord(
        **{name: whole.agent[name] for name in fields},
        collections=whole.collections,
        state=State(**state),
    )


def _section(row: Row) -> SectionRecord:
    return SectionRecord(
        name=row["name"],
        text=row["content"],
        limit=row["character_limit"],
        description=row["description"],
        read_only=row["read_only"],
        version=row["version"],
        updated_at=row["updated_at"],
    )


def _tool(row: Row) -> ToolRecord:
    own = {name: row[name] for name in DefinitionRecord.model_fields}
    rules = {name: row[name] for name in ToolRecord.model_fields if name != "definition"}
    return ToolRecord(**rules, definition=DefinitionRecord(**own) if row["kind"] else None)


def _message(row: Row) -> MessageRecord:
    call = None
    if row["call_id"] is not None:
        call = CallPart(
            id=row["call_id"],
            name=row["name"],
            arguments=row["arguments"],
            state=row["state"],
            result=row["result"],
            waits_for=row["waits_for"],
            answer=row["answer"],
            created_at=row["called_at"],
            finished_at=row["finished_at"],
        )
    return MessageRecord(
        position=row["position"],
        role=row["role"],
        text=row["content"],
        thought=row["thought"],
        tokens=row["tokens"],
        created_at=row["created_at"],
        call=call,
        fields=row["fields"],
    )


def _passage(row: Row) -> PassageRecord:
    vector = row["vector"]
    return PassageRecord(
        id=row["id"],
        number=row["number"],
        text=row["content"],
        tags=row["tags"],
        metadata=row["metadata"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        vector=None if vector is None else b64encode(pack_float16(vector.to_list())).decode(),
    )
