"""memserver's archival search alone, through its HTTP API: no model, no answer, only what is found."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from typing_extensions import override

from memserver.client import AsyncClient
from memserver.client.models import SearchMode
from memserver.errors import InvalidInput
from memserver_evals.systems.memory import MemorySystem
from memserver_evals.task import Conversation, Found, Material, Reply

RESULTS = 20
"""That are looked at where the task doesn't say."""


class SearchSystem(MemorySystem):
    """A memserver that is only searched. Libraries become collections, as for `memserver`."""

    def __init__(self, client: AsyncClient, mode: SearchMode = "hybrid") -> None:
        super().__init__(client, name=f"search-{mode}")
        self.mode = mode

    @override
    @asynccontextmanager
    async def begin(self, example_id: str, material: Material) -> AsyncIterator[Conversation]:
        if material.library is None or not material.library.shared:
            raise InvalidInput(
                f"{self.name} searches the documents of a shared library; there is none."
            )
        collection = await self._collection(material.library)
        yield _Search(self, collection, material.documents_shown or RESULTS)


@dataclass
class _Search(Conversation):
    system: SearchSystem
    collection: UUID
    results: int

    @override
    async def say(self, text: str, *, at: datetime | None = None) -> Reply:
        found: list[Found] = []
        page = 1
        while len(found) < self.results:
            results = await self.system.client.collections.search(
                self.collection, text, mode=self.system.mode, page=page
            )
            found += [
                Found(str(item.metadata["document"]), "document", item.text)
                for item in results.items
            ]
            if page >= results.pages:
                break
            page += 1
        return Reply("", found=tuple(found[: self.results]))
