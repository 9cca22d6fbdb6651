"""Documents: from a file to passages of a collection.

Owns the way there: the file is stored, and the answer given; then a job reads it, settles where it is cut,
embeds chunk after chunk and stores them as passages. A job that is cut off anywhere continues where it stood.
Leaves reading files to `parsing`, cuts to `chunking`, rows to `storage.documents`.
"""

import asyncio
import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast
from uuid import UUID

from memserver.embeddings.base import Embedder, Vector
from memserver.errors import (
    DatabaseError,
    DocumentError,
    EmbeddingRejected,
    MemserverError,
    NotFound,
)
from memserver.memory.chunking import Chunker, embed_each, lead_in
from memserver.memory.language import with_languages
from memserver.memory.parsing.base import Kind, Parsed, TextSection
from memserver.memory.parsing.detect import detect
from memserver.memory.parsing.encoding import declared_charset
from memserver.memory.parsing.sandbox import Sandbox
from memserver.memory.parsing.sentences import LANGUAGES
from memserver.storage import collections, documents, passages
from memserver.storage.database import Database, Transaction
from memserver.storage.documents import About, DocumentRow, Text, Upload
from memserver.storage.ids import nth_id
from memserver.storage.jobs import Job, JobRun, any_due, defer
from memserver.storage.passages import NewPassage
from memserver.storage.repeating import end as cancel_and_wait
from memserver.text import Span, clean_json

JOB = "ingest_document"
UPLOADED = "document_uploaded"
"""The job that has one agent notified of a document that is stored."""
BATCH = 128  # chunks that are embedded, and stored in one transaction
PIECE_SECONDS = 20.0
"""What one job may take before it queues the next one, where others wait for their turn."""
LONGEST_SECONDS = 600.0
"""The same where none waits: the next one begins only when somebody looks for jobs (`JobRunner`)."""


@dataclass(frozen=True, slots=True)
class DocumentLimits:
    """What a file and its passages may have."""

    max_bytes: int
    chunk_tokens: int  # of a passage, within what the embedder reads
    chunk_overlap: int  # tokens that a passage repeats of the one before, at most


class DocumentStore:
    def __init__(
        self,
        database: Database,
        embedder_of: Callable[[str, int], Embedder],
        sandbox: Sandbox,
        limits: DocumentLimits,
    ) -> None:
        """Read files in the sandbox, and embed them by the embedder of their collection's model and dimension."""
        self.limits = limits
        self._database = database
        self._embedder_of = embedder_of
        self._sandbox = sandbox

    async def add(
        self, tenant: str, collection_id: UUID, upload: Upload, *, unique: bool = False
    ) -> tuple[DocumentRow, bool]:
        """Store a file and queue the rest; from the return on nothing can lose it.

        Returns the document, and whether it is a new one: with `unique` the collection's document of the same
        content is taken, if there is one; it and its passages get the upload's tags and metadata beside their own.

        Raises:
            InvalidInput: it would have too many tags.
            DocumentError: a kind of file that is not read here.
            EmbeddingError: there is no embedder of the collection's model here.
        """
        kind = await asyncio.to_thread(detect, upload.content, upload.name, upload.content_type)
        digest = hashlib.sha256(upload.content).digest()
        async with self._database.tenant(tenant) as tx:
            collection = await collections.lock(tx, collection_id)
            self._embedder_of(collection.embedding_model, collection.dimension)
            known = await documents.find_by_content(tx, collection_id, digest) if unique else None
            if known is not None:
                return await documents.label(tx, known, upload), False
            charset = declared_charset(upload.content_type)
            document = await documents.create(tx, collection, upload, kind, charset, digest)
            await queue(tx, document)
        return document, True

    async def run(self, job: JobRun) -> None:
        """Do a piece of the work on a document, and queue the next one."""
        document_id = UUID(job.args["document"])
        problem: MemserverError | None = MemserverError(
            "The server has a fault.", hint="Its log says more. Then resume the document."
        )
        try:
            await self._work(job.tenant, document_id)
            problem = None
        except asyncio.CancelledError:
            problem = None
            raise
        except (DocumentError, EmbeddingRejected) as error:
            await self._note(job.tenant, document_id, error, final=True)
            problem = None
        except NotFound:  # deleted meanwhile
            problem = None
        except MemserverError as error:
            problem = None if isinstance(error, DatabaseError) else error
            raise
        finally:
            if problem is not None:
                await self._note(job.tenant, document_id, problem, final=job.last)

    async def _work(self, tenant: str, document_id: UUID) -> None:
        async with self._database.tenant(tenant) as tx:
            document = await documents.start(tx, document_id)
            read = await documents.text(tx, document_id)
        if document is None:
            return
        if read is None:
            document, read = await self._read(document)
        await self._fill(document, read)

    async def _read(self, document: DocumentRow) -> tuple[DocumentRow, Text]:
        """Read the file, and settle where it is cut."""
        async with self._database.tenant(document.tenant) as tx:
            content = await documents.file(tx, document.id)
            collection = await collections.get(tx, document.collection_id)
        language = LANGUAGES.get(collection.language, "en")
        parsed = await self._sandbox.parse(
            content, cast("Kind", document.kind), language, document.charset
        )
        chunker = Chunker(
            self._embedder_of(collection.embedding_model, collection.dimension),
            tokens=self.limits.chunk_tokens,
            overlap=self.limits.chunk_overlap,
        )
        sections = SectionIndex(await _with_short_leads(parsed, chunker))
        borders = [section.start for section in sections.all if section.border]
        spans = await chunker.plan(parsed.text, parsed.sentences, borders, sections.lead_of)
        read = Text(
            parsed.text,
            clean_json([section.to_json() for section in sections.all]),
            [(span.start, span.end) for span in spans],
        )
        about = About(parsed.pages, parsed.warnings, clean_json(parsed.metadata), parsed.tags)
        async with self._database.tenant(document.tenant) as tx:
            document = await documents.store_text(tx, document.id, read, about)
            stored = await documents.text(tx, document.id)
            assert stored is not None
        return document, stored

    async def _fill(self, document: DocumentRow, read: Text) -> None:
        """Embed and store chunks until all are, or the time is over; the next batch is embedded meanwhile."""
        clock = asyncio.get_running_loop().time
        start = clock()
        source = _Source(document, read)
        async with self._database.tenant(document.tenant) as tx:
            collection = await collections.get(tx, document.collection_id)
        embedder = self._embedder_of(collection.embedding_model, collection.dimension)
        done = document.chunks_done
        embedding = asyncio.create_task(_embed(embedder, source, done))
        try:
            while done < source.total:
                vectors = await embedding
                to = done + len(vectors)
                over = await self._is_over(document.tenant, clock() - start)
                if to < source.total and not over:
                    embedding = asyncio.create_task(_embed(embedder, source, to))
                new = await with_languages(source.passages(done, vectors))
                if not await self._store(source, new, done, embedder.model, queue_next=over):
                    return
                if over:
                    return
                done = to
                await source.by_length(embedder, to + BATCH)
        finally:
            await cancel_and_wait(embedding)

    async def _is_over(self, tenant: str, seconds: float) -> bool:
        """Whether a job that has worked for so long leaves the rest to another one."""
        if seconds < PIECE_SECONDS:
            return False
        if seconds > LONGEST_SECONDS:
            return True
        async with self._database.tenant(tenant) as tx:
            return await any_due(tx)

    async def _store(
        self,
        source: "_Source",
        new: Sequence[NewPassage],
        done: int,
        model: str,
        *,
        queue_next: bool,
    ) -> bool:
        """Store a batch; false if the document is no longer ours to fill."""
        document = source.document
        to = done + len(new)
        async with self._database.tenant(document.tenant) as tx:
            current = await documents.advance(tx, document, done=done, to=to)
            if current is None:
                return False
            await passages.insert(tx, document.collection_id, new, model=model)
            if queue_next and to < source.total:
                await queue(tx, document)
            if current.state == "done":
                for agent_id in await documents.agents_notified(tx, document.collection_id):
                    args = {"agent_id": str(agent_id), "document": str(document.id)}
                    key = f"{agent_id} {document.id}"
                    await defer(tx, Job(UPLOADED, document.tenant, args, key=key))
            if (current.tags, current.metadata) != (document.tags, document.metadata):
                ids = [passage.id for passage in new if passage.id is not None]
                at = document.collection_id, ids
                await passages.label(tx, at, current.tags, current.metadata)
        return True

    async def _note(
        self, tenant: str, document_id: UUID, error: MemserverError, *, final: bool
    ) -> None:
        async with self._database.tenant(tenant) as tx:
            await documents.note_error(tx, document_id, error, final=final)


async def _embed(embedder: Embedder, source: "_Source", first: int) -> list[Vector]:
    """Vectors of the next batch of chunks, which are embedded by length: alike ones need no padding."""
    texts = source.texts(first)
    order = await source.by_length(embedder, first)
    vectors = await embed_each([texts[at] for at in order], embedder)
    made: list[Vector] = [[] for _ in texts]
    for at, vector in zip(order, vectors, strict=True):
        if isinstance(vector, EmbeddingRejected):
            message = f"Passage {first + at + 1} of {source.total}: {vector.message}"
            raise EmbeddingRejected(message, hint=vector.hint) from vector
        made[at] = vector
    return made


async def _with_short_leads(parsed: Parsed, chunker: Chunker) -> list[TextSection]:
    """The sections; the names of so many columns that they would fill a passage are not repeated."""
    headers = {section.header for section in parsed.sections if section.header}
    long = {header for header in headers if not await chunker.fits(parsed.text, Span(*header))}
    return [
        replace(section, header=None) if section.header in long else section
        for section in parsed.sections
    ]


async def queue(tx: Transaction, document: DocumentRow) -> None:
    """Have a document worked on, once, however often this is called."""
    args = {"document": str(document.id)}
    await defer(tx, Job(JOB, document.tenant, args, key=str(document.id)))


class SectionIndex:
    """A document's sections, by their place in its text."""

    def __init__(self, sections: Sequence[TextSection]) -> None:
        self.all = sections
        self._starts = [section.start for section in sections]

    def at(self, character: int) -> TextSection:
        index = bisect_right(self._starts, character) - 1
        return self.all[index] if index >= 0 else TextSection(0)

    def begun_in(self, span: Span) -> Sequence[TextSection]:
        """Those that begin after the first character of a span."""
        first, end = bisect_right(self._starts, span.start), bisect_left(self._starts, span.end)
        return self.all[first:end]

    def lead_of(self, character: int) -> Span | None:
        header = self.at(character).header
        return Span(*header) if header else None


class _Source:
    def __init__(self, document: DocumentRow, read: Text) -> None:
        self.document = document
        self.total = len(read.chunks)
        self._text = read.content
        self._spans = [Span(start, end) for start, end in read.chunks]
        self._sections = SectionIndex([TextSection.from_json(section) for section in read.sections])
        self._order: tuple[int, list[int]] = (-1, [])  # of the batch that begins there

    async def by_length(self, embedder: Embedder, first: int) -> list[int]:
        """A batch's places by the tokens of their texts. For the next one it is found while the embedder works."""
        known, order = self._order
        if known != first:
            texts = self.texts(first)
            tokens = await embedder.count_tokens(texts) if texts else []
            order = sorted(range(len(tokens)), key=tokens.__getitem__)
            self._order = (first, order)
        return order

    def texts(self, first: int) -> list[str]:
        return [self._text_of(span) for span in self._spans[first : first + BATCH]]

    def passages(self, first: int, vectors: Sequence[Vector]) -> list[NewPassage]:
        """A batch of chunks as passages that say where they come from."""
        return [self._passage(first + at, vector) for at, vector in enumerate(vectors)]

    def _text_of(self, span: Span) -> str:
        lead = self._sections.lead_of(span.start)
        return lead_in(self._text, lead) + self._text[span.start : span.end]

    def _passage(self, number: int, vector: Vector) -> NewPassage:
        span = self._spans[number]
        first, begun = self._sections.at(span.start), self._sections.begun_in(span)
        last = begun[-1] if begun else first
        rows = [section.row for section in (first, *begun) if section.row is not None]
        pages = [(each.page, each.start - span.start) for each in begun if each.page is not None]
        own = {
            "document": str(self.document.id),
            "document_name": self.document.name,
            "chunk": number + 1,
            "start": span.start,
            "end": span.end,
            "page": first.page,
            "page_end": last.page if last.page != first.page else None,
            "page_starts": pages or None,
            "heading": last.heading or None,
            "record": first.record,
            "record_end": last.record if last.record != first.record else None,
            "row": rows[0] if rows else None,
            "row_end": rows[-1] if len(rows) > 1 else None,
        }
        return NewPassage(
            self._text_of(span),
            vector,
            tags=list(dict.fromkeys([*self.document.tags, *first.tags])),
            metadata={
                **first.metadata,
                **self.document.metadata,
                **{key: value for key, value in own.items() if value is not None},
            },
            created_at=self.document.created_at,
            id=nth_id(self.document.id, number),
        )
