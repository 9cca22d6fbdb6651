"""An agent from a file: all of it in one transaction, in bounded batches, so that there is a whole agent or none.

What an embedder has to do comes first, while no transaction is open; the vectors wait in a file on disk. From then
on nothing but the database is waited for.
"""

import asyncio
import json
import tempfile
from base64 import b64decode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import IO, Any
from uuid import UUID

from pydantic import ValidationError

from memserver.agent.options import AgentOptionsIn
from memserver.agent_files import statements
from memserver.agent_files.archive import LONGEST_LINE
from memserver.agent_files.float16 import decode_vector, pack_float16, unpack_float16
from memserver.agent_files.records import (
    FileRecord,
    MessageRecord,
    PassageRecord,
    SectionRecord,
    TimerRecord,
)
from memserver.agent_files.source import AgentSource, Note
from memserver.agent_files.tool_grants import ToolGrants
from memserver.errors import AgentFileCorrupt, InvalidInput, PictureRefused
from memserver.memory.archival import ArchivalStorage
from memserver.memory.attachments import MOST_SECTIONS
from memserver.memory.chunking import embed_whole
from memserver.memory.language import with_languages
from memserver.memory.pictures import PictureLimits, from_bytes
from memserver.memory.timers import MOST as MOST_TIMERS
from memserver.memory.timers import keep_timer
from memserver.messages import JsonObject
from memserver.storage import collections, passages, pictures
from memserver.storage.agents import AgentRow
from memserver.storage.agents import get as get_agent
from memserver.storage.database import Database, Transaction
from memserver.storage.erasure import rewriting_job
from memserver.storage.ids import new_id
from memserver.storage.inbox import PLACES_PER_TURN
from memserver.storage.jobs import defer
from memserver.storage.passages import NewPassage

MOST_TOOLS = 1000
"""Of which an agent's file says anything."""

BATCH = 200
"""Records that are written together: what an import holds in memory."""
LONG_BATCH = 4_000_000
"""Characters after which a batch is long enough."""
EMBEDDED_TOGETHER = 64
ANY_SIZE = PictureLimits(LONGEST_LINE, 2**31)
"""Pictures were taken within the limits of the server that exported them."""
JSON_FIELDS = {"error", "arguments", "answer", "fields", "pictures"}


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """`name`: instead of the file's; `keep_ids`: the agent and its passages keep their ids."""

    name: str | None = None
    keep_ids: bool = False


@dataclass(frozen=True, slots=True)
class Imported:
    """The new agent, how many records of each list it has, whether its passages were embedded, what was not carried."""

    agent: AgentRow
    counts: Mapping[str, int]
    embedded: bool
    notes: Sequence[Note]


Before = Callable[[Transaction, Imported], Awaitable[None]]
"""Called before the commit; what it writes is a part of it."""


class AgentImporter:
    def __init__(
        self, database: Database, archival: ArchivalStorage, tool_grants: ToolGrants
    ) -> None:
        self._database = database
        self._archival = archival
        self._tool_grants = tool_grants

    async def run(
        self, tenant: str, source: AgentSource, options: ImportOptions, before: Before
    ) -> Imported:
        """Make an agent of a file's records; `before` is called before the commit.

        Raises:
            AgentFileError: the file can't be imported; nothing is left of it.
            Conflict: there is an agent of its name, or of its id.
            EmbeddingError: the embedder failed.
        """
        stored_options = _read_options(source.agent.options).as_stored()
        dimension = await self._archival.dimension()
        model = self._archival.embedder.model
        theirs = source.vectors
        fitting = theirs is not None and (theirs.model, theirs.dimension) == (model, dimension)
        with tempfile.TemporaryFile() as spool:
            embedded = await self._spool_vectors(source, spool, dimension, fitting)
            spool.seek(0)
            async with self._database.tenant(tenant) as tx:
                with statements.refusals():
                    writing = _Writing(tx, tenant, source, options)
                    await writing.agent(model, dimension, stored_options)
                    await writing.working_context()
                    notes = await self._tool_grants.grant(
                        tx, tenant, writing.agent_id, _tools(source)
                    )
                    await writing.history()
                    await writing.pictures()
                    await writing.passages(spool, model, dimension)
                    await writing.timers()
                    await writing.state()
                    agent = await get_agent(tx, writing.agent_id)
                imported = Imported(
                    agent, writing.counts, embedded, [*source.notes, *writing.notes, *notes]
                )
                await before(tx, imported)
        return imported

    async def _spool_vectors(
        self, source: AgentSource, spool: IO[bytes], dimension: int, fitting: bool
    ) -> bool:
        """Write the vectors of all passages to a file; returns whether any had to be made."""
        records: Iterator[PassageRecord] = source.records("passages")
        made = False
        while batch := await asyncio.to_thread(_take, records, EMBEDDED_TOGETHER):
            given = [
                decode_vector(each.vector, dimension) if fitting and each.vector else None
                for each in batch
            ]
            missing = [each.text for each, vector in zip(batch, given, strict=True) if not vector]
            if missing:
                made = True
                vectors = iter(await embed_whole(missing, self._archival.embedder))
                given = [vector or pack_float16(next(vectors)) for vector in given]
            await asyncio.to_thread(spool.write, b"".join(each for each in given if each))
        return made


def _tools(source: AgentSource) -> list[Any]:
    """What the agent says of tools. Raises AgentFileCorrupt where no agent could say so much."""
    found = list(islice(source.records("tools"), MOST_TOOLS + 1))
    if len(found) > MOST_TOOLS:
        raise AgentFileCorrupt(f"tools.jsonl: it has more than {MOST_TOOLS} lines.")
    return found


@dataclass
class _Writing:
    tx: Transaction
    tenant: str
    source: AgentSource
    options: ImportOptions
    agent_id: UUID = field(default_factory=new_id)
    collection_id: UUID = field(default_factory=new_id)
    counts: dict[str, int] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    summarised: int = 0
    outdated: bool = False

    async def agent(self, model: str, dimension: int, stored_options: JsonObject) -> None:
        record = self.source.agent
        if self.options.keep_ids and record.id is not None:
            self.agent_id = record.id
        language = record.language
        try:
            if language != collections.AUTO:
                await collections.check_language(self.tx, language)
        except InvalidInput:
            self.notes.append(Note("language", language, "The database doesn't know it; auto."))
            language = collections.AUTO
        await statements.insert_agent(
            self.tx,
            self.tenant,
            {
                **record.model_dump(),
                "id": self.agent_id,
                "name": self.options.name or record.name,
                "options": stored_options,
                "language": language,
                "collection_id": self.collection_id,
                "embedding_model": model,
                "dimension": dimension,
            },
        )
        there = await statements.attach_collections(
            self.tx, self.tenant, self.agent_id, record.collections
        )
        self.notes += [
            Note("collection", name, "There is no shared collection of this name to attach.")
            for name in record.collections
            if name not in there
        ]

    async def working_context(self) -> None:
        sections: list[SectionRecord] = list(self.source.records("sections"))
        if len(sections) > MOST_SECTIONS:
            raise AgentFileCorrupt(f"sections.jsonl: more than {MOST_SECTIONS} sections.")
        ids = {section.name: new_id() for section in sections}
        newest = {section.name: section for section in sections}
        for place, section in enumerate(sections, 1):
            values = {**section.model_dump(), "id": ids[section.name], "place": place}
            await statements.insert_section(self.tx, self.tenant, self.agent_id, values)
        self.counts["sections"] = len(sections)
        ended = set()
        async for batch in self._batches("edits"):
            rows = []
            for edit in batch:
                if edit.section not in ids:
                    raise AgentFileCorrupt(f"edits.jsonl: there is no section {edit.section!r}.")
                last = newest[edit.section]
                if (edit.version, edit.text) == (last.version, last.text):
                    ended.add(edit.section)
                agent_id = self.agent_id if edit.own else None
                section_id = ids[edit.section]
                rows.append({**edit.model_dump(), "section_id": section_id, "agent_id": agent_id})
            await statements.insert_rows(self.tx, "edits", rows, tenant=self.tenant)
        if without := ids.keys() - ended:
            raise AgentFileCorrupt(
                f"edits.jsonl: the last version of section {min(without)!r} is not its text."
            )

    async def history(self) -> None:
        end = (self.source.agent.state.done_turn + 1) * PLACES_PER_TURN
        async for batch in self._batches("summaries"):
            await self._insert("summaries", batch)
            self.summarised = max(self.summarised, *(each.until for each in batch))
            self.outdated |= any(each.outdated for each in batch)
        if max(self.summarised, self.source.agent.state.queue_start) > end:
            raise AgentFileCorrupt(
                "The file contradicts itself: a summary, or the prompt's beginning, stands after the last turn."
            )
        async for batch in self._batches("turns"):
            if any(each.turn * PLACES_PER_TURN >= end for each in batch):
                raise AgentFileCorrupt("turns.jsonl: a turn stands after the last one.")
            await self._insert("turns", batch)
        async for batch in self._batches("messages"):
            _check_messages(batch, end)
            rows = await asyncio.to_thread(_dump, batch)
            await statements.insert_messages(self.tx, self.tenant, self.agent_id, rows)
        if (lost := await statements.find_lost_message(self.tx, self.agent_id)) is not None:
            raise AgentFileCorrupt(
                f"messages.jsonl: position {lost} is in no turn of turns.jsonl.",
                hint="The file is not of one moment; export the agent again.",
            )

    async def _insert(self, name: str, batch: Sequence[FileRecord]) -> None:
        rows = await asyncio.to_thread(_dump, batch)
        await statements.insert_rows(
            self.tx, name, rows, tenant=self.tenant, agent_id=self.agent_id
        )

    async def pictures(self) -> None:
        async for batch in self._batches("pictures"):
            try:
                found = [from_bytes(b64decode(each.data), ANY_SIZE) for each in batch]
            except (ValueError, PictureRefused) as error:
                raise AgentFileCorrupt(f"pictures.jsonl: {error}") from error
            if any(read.digest != each.digest for read, each in zip(found, batch, strict=True)):
                raise AgentFileCorrupt("pictures.jsonl: a digest is not that of its picture.")
            await pictures.keep(self.tx, self.tenant, found)

    async def passages(self, spool: IO[bytes], model: str, dimension: int) -> None:
        async for batch in self._batches("passages"):
            data = await asyncio.to_thread(spool.read, 2 * dimension * len(batch))
            size = 2 * dimension
            new = await with_languages(
                [
                    NewPassage(
                        each.text,
                        unpack_float16(data[place * size : (place + 1) * size]),
                        each.tags,
                        each.metadata,
                        each.created_at,
                        id=each.id if self.options.keep_ids and each.id else new_id(),
                        updated_at=each.updated_at or each.created_at,
                        number=each.number,
                        expires_at=each.expires_at,
                    )
                    for place, each in enumerate(batch)
                ]
            )
            stored = await passages.insert(self.tx, self.collection_id, new, model=model)
            if len(stored) < len(new):
                raise AgentFileCorrupt("passages.jsonl: two passages have the same id.")

    async def timers(self) -> None:
        timers: list[TimerRecord] = list(islice(self.source.records("timers"), MOST_TIMERS + 1))
        if len(timers) > MOST_TIMERS:
            raise AgentFileCorrupt(f"timers.jsonl: it has more than {MOST_TIMERS} lines.")
        for each in timers:
            await keep_timer(self.tx, self.tenant, self.agent_id, each.text, each.due)
        self.counts["timers"] = len(timers)

    async def state(self) -> None:
        state = self.source.agent.state.model_dump()
        if state["queue_start"] < self.summarised:
            self.notes.append(
                Note(
                    "summary",
                    "",
                    "It covers messages that were still in the prompt: the file was not of one moment. "
                    "They are found by search, and the prompt begins after them.",
                )
            )
            state["queue_start"] = self.summarised
        await statements.set_state(self.tx, self.agent_id, state, self.counts["messages"])
        if self.outdated:
            await defer(self.tx, rewriting_job(self.tenant, self.agent_id))

    async def _batches(self, name: str) -> AsyncIterator[list[Any]]:
        records = self.source.records(name)
        self.counts[name] = 0
        while batch := await asyncio.to_thread(_take, records, BATCH):
            self.counts[name] += len(batch)
            yield batch


def _take(records: Iterator[Any], count: int) -> list[Any]:
    """The next records: so many, or fewer where they are long."""
    taken, characters = [], 0
    for record in islice(records, count):
        taken.append(record)
        characters += len(record.model_dump_json())
        if characters > LONG_BATCH:
            break
    return taken


def _dump(batch: Sequence[FileRecord]) -> list[dict[str, Any]]:
    """What is stored of records, JSON written out: the event loop would stand still while it is."""
    rows = [record.model_dump() for record in batch]
    for row in rows:
        for holder in (row, row.get("call") or {}):
            for name in JSON_FIELDS & holder.keys():
                value = holder[name]
                holder[name] = None if value is None else json.dumps(value, ensure_ascii=False)
    return rows


def _check_messages(batch: Sequence[MessageRecord], end: int) -> None:
    for message in batch:
        if not PLACES_PER_TURN <= message.position < end:
            raise AgentFileCorrupt(
                f"messages.jsonl: position {message.position} is in no turn of the agent's."
            )


def _read_options(options: Mapping[str, Any]) -> AgentOptionsIn:
    try:
        return AgentOptionsIn.model_validate(options)
    except ValidationError as error:
        first = error.errors()[0]
        field_ = ".".join(map(str, first["loc"]))
        raise AgentFileCorrupt(f"agent.json: options.{field_}: {first['msg']}.") from error
