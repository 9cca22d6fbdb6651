"""Recall storage as a tool and a caller search it: by text, words, meaning, date and role; in pages or after a cursor."""

import asyncio
import base64
import binascii
import logging
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from uuid import UUID

from memserver.embeddings.base import Embedder, Vector
from memserver.errors import EmbeddingError, InvalidInput
from memserver.memory.fusion import weigh
from memserver.memory.message_index import parts_of
from memserver.memory.paging import ResultPage, header
from memserver.memory.results import ResultReader, describe, message_result
from memserver.messages import Entry
from memserver.storage import message_index, message_vectors, recall
from memserver.storage.database import TenantScope, Transaction
from memserver.storage.nearest_messages import nearest
from memserver.storage.recall import RecallQuery, SearchCursor, SearchPage, SearchWindow
from memserver.wire.messages import Coverage, FoundBy, RecallMode

logger = logging.getLogger(__name__)

COUNTED_TO = 10_000
"""Results of a search by the very text that are counted; of a word in every message nobody needs to know more."""
HYBRID_COUNTED_TO = 300  # of a hybrid search, which an agent waits for
ENOUGH_EXACT = 100
"""With so many messages that hold the very text nothing is looked for by words and meaning."""
MOST_RANKED = 100  # messages that words and meaning together find
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class RecallHit:
    message: Entry
    found_by: tuple[FoundBy, ...] = ()  # what found it; empty where only dates and roles were given
    # Of its text, what means most nearly what was looked for; None if it wasn't found by meaning
    part: slice | None = None
    score: float | None = None  # of the meaning: cosine similarity


@dataclass(frozen=True, slots=True)
class RecallPage:
    # In order: those that hold the very text first, newest first; then by words and meaning, best first
    hits: tuple[RecallHit, ...]
    total: int  # of all pages; `exact`: whether that is all, or there are more
    exact: bool
    next: str | None  # the cursor of what follows, for a search by text, date or role alone
    page: ResultPage  # which page it is
    coverage: Coverage | None = None  # how much can be found by meaning, where that was looked for
    failed: bool = False  # whether it could not be looked for by meaning
    query: str = ""  # what was looked for

    async def describe(self, zone: tzinfo, reader: ResultReader) -> str:
        """The answer of a search tool, its times in this zone, for who reads it."""
        results = [
            message_result(hit.message, zone, found_by=hit.found_by, part=hit.part)
            for hit in self.hits
        ]
        head = header(len(results), self.page, self.total, exact=self.exact)
        described = await describe(head, results, self.query, reader)
        return f"{described}\n(The search by meaning failed.)" if self.failed else described


class RecallStorage:
    """Searches the history of agents; no transaction is open while a query is embedded, and none of a search writes."""

    def __init__(self, embedder: Embedder | None) -> None:
        """Make it with the embedder of the messages; None: they have no vectors."""
        self._embedder = embedder

    async def search(
        self,
        scope: TenantScope,
        agent_id: UUID,
        query: RecallQuery,
        page: ResultPage,
        mode: RecallMode = "hybrid",
        *,
        patience: float | None = None,
    ) -> RecallPage:
        """Search the history. A page that doesn't exist is empty, with the right total.

        A query without a text lists what its dates and roles let through. If the embedder fails, a hybrid
        search finds what it can without it; also if it takes more than `patience` seconds. Where vectors are
        missing, as after a change of the embedding model, they are requested.

        Raises:
            EmbeddingError: the embedder failed in a search by meaning alone.
            InvalidInput: in a search by meaning alone: messages aren't embedded on this server.
        """
        blank = query.text is None or not query.text.strip()
        if blank or query.ignore_case or mode == "exact":
            return await scope.read(lambda tx: search(tx, agent_id, query, page))
        vector, failed = await self._vector(query.text or "", mode, patience)
        found, is_missing = await scope.read(
            lambda tx: self._find(tx, agent_id, query, page, mode, vector)
        )
        if is_missing:
            async with scope.transaction() as tx:
                await message_index.request(tx, agent_id)
        return replace(found, failed=failed)

    async def _find(
        self,
        tx: Transaction,
        agent_id: UUID,
        query: RecallQuery,
        page: ResultPage,
        mode: RecallMode,
        vector: Vector | None,
    ) -> tuple[RecallPage, bool]:
        """The page, and whether vectors are missing that nobody has requested."""
        exact: list[int] = []
        if mode == "hybrid":
            window = SearchWindow(ENOUGH_EXACT, count_to=HYBRID_COUNTED_TO)
            total, counted, exact = await recall.count_and_positions(tx, agent_id, query, window)
            if total >= ENOUGH_EXACT:
                found = (total, counted, exact)
                return await self._exact_page(tx, agent_id, query, page, found), False
        ranked, coverage, is_missing = await self._ranked(tx, agent_id, query, mode, vector)
        held = set(exact)
        order = [*exact, *[each for each in ranked if each not in held][:MOST_RANKED]]
        offset = max(page.offset, 0) if page.number >= 1 else len(order)
        shown = order[offset : offset + page.size]
        hits = tuple(
            _hit(message, ranked.get(message.position, _Ranked()), message.position in held)
            for message in await recall.at_positions(tx, agent_id, shown)
        )
        text = query.text or ""
        return RecallPage(hits, len(order), True, None, page, coverage, query=text), is_missing

    async def _exact_page(
        self,
        tx: Transaction,
        agent_id: UUID,
        query: RecallQuery,
        page: ResultPage,
        found: tuple[int, bool, list[int]],
    ) -> RecallPage:
        """A page of messages that hold the very text, of which the first are known."""
        total, counted, first = found
        if page.number < 1 or page.offset + page.size > len(first):
            return await search(tx, agent_id, query, page, count_to=HYBRID_COUNTED_TO)
        shown = first[page.offset : page.offset + page.size]
        messages = await recall.at_positions(tx, agent_id, shown)
        hits = tuple(RecallHit(message, ("exact",)) for message in messages)
        last = messages[-1]
        cursor = write_cursor(SearchCursor(last.created_at, last.position))
        return RecallPage(hits, total, counted, cursor, page, query=query.text or "")

    async def _vector(
        self, text: str, mode: RecallMode, patience: float | None
    ) -> tuple[Vector | None, bool]:
        """The query's vector, if meaning counts; and whether the embedder failed."""
        if mode == "words" or (self._embedder is None and mode == "hybrid"):
            return None, False
        if self._embedder is None:
            raise InvalidInput(
                "Messages can't be searched by meaning on this server.",
                hint="Search by words, or set MEMSERVER_EMBED_MESSAGES.",
            )
        try:
            async with asyncio.timeout(patience):
                vector = await self._embedder.embed_query(text)
        except (EmbeddingError, TimeoutError) as error:
            if mode == "meaning":
                raise
            logger.warning(
                "A search goes without meaning: %s", str(error) or "no embedding in time"
            )
            return None, True
        return vector, False

    async def _ranked(
        self,
        tx: Transaction,
        agent_id: UUID,
        query: RecallQuery,
        mode: RecallMode,
        vector: Vector | None,
    ) -> tuple[dict[int, "_Ranked"], Coverage | None, bool]:
        """What words and meaning find, best first; and how much can be found by meaning, as `_coverage` says."""
        held: dict[int, float] = {}
        near: dict[int, message_vectors.VectorHit] = {}
        coverage, is_missing = None, False
        if mode != "meaning":
            held = await recall.by_words(tx, agent_id, query, at_most=MOST_RANKED)
        if vector is not None and self._embedder is not None:
            space = (self._embedder.model, len(vector))
            state = await message_vectors.find_embedded(tx, agent_id, *space)
            coverage, is_missing = await _coverage(tx, agent_id, state)
            if state is not None:
                best = await nearest(tx, state, vector, query, MOST_RANKED)
                near = {each.position: each for each in best}
        ranked = {}
        by: dict[FoundBy, Collection[int]] = {"words": held, "meaning": near}
        for position in weigh(held, {each.position: each.score for each in near.values()}):
            found_by = tuple(name for name, found in by.items() if position in found)
            part = near.get(position)
            ranked[position] = (
                _Ranked(found_by) if part is None else _Ranked(found_by, part.part, part.score)
            )
        return ranked, coverage, is_missing


@dataclass(frozen=True, slots=True)
class _Ranked:
    found_by: tuple[FoundBy, ...] = ()
    part: int | None = None
    score: float | None = None


def _hit(message: Entry, ranked: _Ranked, exact: bool) -> RecallHit:
    part = None
    if ranked.part is not None:
        part = next(islice(parts_of(message.text), ranked.part, None), None)
    return RecallHit(message, ("exact",) if exact else ranked.found_by, part, ranked.score)


async def _coverage(
    tx: Transaction, agent_id: UUID, state: message_vectors.EmbeddedHistory | None
) -> tuple[Coverage, bool]:
    """How much can be found by meaning; and whether vectors are missing that nobody has requested."""
    spoken = await message_vectors.read_spoken(tx, agent_id)
    complete = spoken.settled <= (state.embedded_to if state else 0)
    embedded = state.messages if state else 0
    coverage = Coverage(embedded=embedded, messages=spoken.messages, complete=complete)
    return coverage, not (complete or spoken.requested)


async def search(
    tx: Transaction,
    agent_id: UUID,
    query: RecallQuery,
    page: ResultPage,
    *,
    count_to: int = COUNTED_TO,
) -> RecallPage:
    """The messages that hold the query's very text, newest first; without a text, oldest first."""
    # A bigint offset: a page number may be anything.
    offset = min(max(page.offset, 0), 2**61)
    limit = page.size if page.number >= 1 else 0
    found = await recall.search(tx, agent_id, query, SearchWindow(limit, offset, count_to=count_to))
    by: tuple[FoundBy, ...] = () if query.text is None else ("exact",)
    hits = tuple(RecallHit(message, by) for message in found.messages)
    text = query.text or ""
    return RecallPage(hits, found.total, found.exact, _next(found), page, query=text)


async def search_after(
    tx: Transaction, agent_id: UUID, query: RecallQuery, cursor: str, limit: int
) -> tuple[tuple[Entry, ...], str | None]:
    """The results after a cursor, whatever has arrived since it was given; and the next cursor.

    Raises:
        InvalidInput: it is no cursor.
    """
    found = await recall.search(tx, agent_id, query, SearchWindow(limit, after=read_cursor(cursor)))
    return found.messages, _next(found)


def write_cursor(place: SearchCursor) -> str:
    micros = (place.created_at - _EPOCH) // timedelta(microseconds=1)
    return base64.urlsafe_b64encode(f"{micros}.{place.position}".encode()).decode().rstrip("=")


def read_cursor(text: str) -> SearchCursor:
    """The place that a cursor names. Raises InvalidInput."""
    try:
        plain = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("ascii")
        micros, position = (int(part) for part in plain.split("."))
        return SearchCursor(_EPOCH + timedelta(microseconds=micros), min(position, 2**62))
    except (binascii.Error, ValueError, OverflowError) as error:
        raise InvalidInput(
            f"after: {text!r} is no cursor.", hint="Take the `next` of the page before."
        ) from error


def _next(found: SearchPage) -> str | None:
    if not found.further or not found.messages:
        return None
    last = found.messages[-1]
    return write_cursor(SearchCursor(last.created_at, last.position))
