"""One agent's memory for code that isn't a memory tool: a Python tool, an MCP client of ours.

Each operation is a transaction of its own, so that nothing is held while the other code takes its time:
what was written stands, whatever becomes of the caller.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from memserver.memory import reading, working_context
from memserver.memory.archival import ArchivalPage, ArchivalQuery, ArchivalStorage
from memserver.memory.paging import PAGE_SIZE, ResultPage
from memserver.memory.reading import LabelledItem
from memserver.memory.recall import RecallPage, RecallStorage
from memserver.messages import MemorySection, StoredPassage
from memserver.storage import agents, collections, sections
from memserver.storage.database import Database, LazyTransaction, TenantScope
from memserver.storage.passages import NewPassage
from memserver.storage.recall import RecallQuery
from memserver.storage.sections import Editor
from memserver.text import clean


@dataclass(frozen=True, slots=True)
class AgentMemory:
    """The three memories of one agent. Every method raises NotFound if there is no such agent."""

    agent_id: UUID
    _tenant: str
    _database: Database
    _archival: ArchivalStorage
    _recall: RecallStorage
    _before: int | None = None

    @property
    def _scope(self) -> TenantScope:
        return TenantScope(self._database, self._tenant)

    @property
    def _editor(self) -> Editor:
        """Who edits: a tool of the agent's, in no call that the history knows."""
        return Editor("tool", self.agent_id)

    async def sections(self) -> list[MemorySection]:
        async with self._database.tenant(self._tenant) as tx:
            await agents.get(tx, self.agent_id)
            return [each.section for each in await sections.read_all(tx, self.agent_id)]

    async def append(self, section: str, content: str) -> str:
        """Add a line to a section; returns its new text.

        Raises:
            NotFound: no such section.
            InvalidInput: nothing to add, or the section would be too long.
        """
        async with self._database.tenant(self._tenant) as tx:
            return await working_context.append(
                tx, self.agent_id, section, clean(content), self._editor
            )

    async def replace(self, section: str, old: str, new: str) -> str:
        """Replace a text in a section, or delete it by an empty `new`; returns the section's new text.

        Raises:
            NotFound: no such section.
            InvalidInput: `old` isn't in it, or the section would be too long.
        """
        async with self._database.tenant(self._tenant) as tx:
            return await working_context.replace_text(
                tx, self.agent_id, section, clean(old), clean(new), self._editor
            )

    async def search_recall(self, text: str, *, page: int = 1, size: int = PAGE_SIZE) -> RecallPage:
        """Search the history: messages that hold the very text first, then by words and meaning, best first."""
        query = RecallQuery(text=clean(text), before=self._before)
        await self._scope.read(lambda tx: agents.get(tx, self.agent_id))
        return await self._recall.search(self._scope, self.agent_id, query, ResultPage(page, size))

    async def search_archival(
        self, text: str, *, page: int = 1, size: int = PAGE_SIZE
    ) -> ArchivalPage:
        """Search archival storage, best first.

        Raises:
            InvalidInput: the text is empty.
            EmbeddingError: the embedder failed.
        """
        searched = partial(collections.readable_by, agent_id=self.agent_id)
        query = ArchivalQuery(clean(text))
        return await self._archival.search(self._scope, searched, query, ResultPage(page, size))

    async def read(self, label: str) -> LabelledItem:
        """Read one message or passage whole, by its label: m12003, p17 or p17@handbook.

        Raises:
            InvalidInput: it is no label.
        """
        async with self._database.tenant(self._tenant) as tx:
            await agents.get(tx, self.agent_id)
            return await reading.find(tx, self.agent_id, clean(label), until=self._before)

    async def insert_archival(self, text: str, *, tags: Sequence[str] = ()) -> StoredPassage:
        """Keep a passage in the agent's own archival storage: the first of several, if the text is that long.

        Raises:
            InvalidInput: the text is empty.
            EmbeddingError: the embedder failed.
        """
        own = partial(collections.own_of, agent_id=self.agent_id)
        passage = NewPassage(clean(text), tags=tuple(clean(tag) for tag in tags))
        async with LazyTransaction(self._database, self._tenant) as lazy:
            stored = await self._archival.insert(lazy, own, [passage])
            return stored[0]
