"""The history of a section, for any sequence of edits by anybody."""

import asyncio
from dataclasses import dataclass
from uuid import UUID, uuid4

from hypothesis import example, given, settings
from hypothesis import strategies as st

from memserver.errors import MemserverError
from memserver.memory import attachments, working_context
from memserver.memory.attachments import Seat
from memserver.memory.working_context import Rewrite, check_version
from memserver.messages import MemorySection
from memserver.storage import agents, sections
from memserver.storage.agents import NewAgent
from memserver.storage.database import Database, Transaction
from memserver.storage.rows import PageQuery
from memserver.storage.sections import Edit, Editor, StoredSection
from tests.support.nightly import times
from tests.support.server import OneDatabase

TENANT = "default"
# One code point each, also where a reader sees one character made of several.
CHARACTERS = st.sampled_from("ab \n%_\\é\u0301👩\u200d🔬\U0001f1e9ß\ufeff")
TEXTS = st.text(CHARACTERS, max_size=12)
LIMITS = st.integers(1, 30)
AGENTS = st.integers(0, 1)


@dataclass(frozen=True)
class Append:
    agent: int
    content: str


@dataclass(frozen=True)
class Replace:
    agent: int
    old: str
    new: str


@dataclass(frozen=True)
class Write:
    change: Rewrite
    by_import: bool
    versions_back: int


@dataclass(frozen=True)
class Undo:
    versions_back: int


@dataclass(frozen=True)
class Restore:
    number: int


Step = Append | Replace | Write | Undo | Restore


def write(text: str, *, limit: int | None = None) -> Write:
    return Write(Rewrite(text, limit), by_import=False, versions_back=0)


STALE = st.sampled_from([0, 0, 0, 1])
STEPS: st.SearchStrategy[Step] = st.one_of(
    st.builds(Append, AGENTS, TEXTS),
    st.builds(Replace, AGENTS, st.text(CHARACTERS, max_size=2), TEXTS),
    st.builds(
        Write,
        st.builds(Rewrite, st.none() | TEXTS, st.none() | LIMITS),
        st.booleans(),
        STALE,
    ),
    st.builds(Undo, STALE),
    st.builds(Restore, st.integers(1, 8)),
)


@dataclass(frozen=True)
class Shared:
    """Two agents that have one section."""

    readers: list[UUID]
    section: UUID


async def shared_section(tx: Transaction) -> Shared:
    readers = []
    for _ in range(2):
        new = NewAgent(str(uuid4()), (), "hashing", 3)
        readers.append((await agents.create(tx, TENANT, new)).id)
    section = await sections.insert(
        tx, TENANT, MemorySection("shared", "", 20), Editor("api"), by_itself=True
    )
    for number, reader in enumerate(readers):
        await attachments.attach(tx, reader, section, f"notes{number}", Seat())
    return Shared(readers, section)


async def act(tx: Transaction, shared: Shared, step: Step) -> Editor:
    """Do it; returns who did."""
    if isinstance(step, Append | Replace):
        who = Editor("tool", shared.readers[step.agent], 1001)
        name = f"notes{step.agent}"
        if isinstance(step, Append):
            await working_context.append(tx, who.agent_id, name, step.content, who)
        else:
            await working_context.replace_text(tx, who.agent_id, name, step.old, step.new, who)
        return who
    who = Editor("import" if isinstance(step, Write) and step.by_import else "api")
    stored = await sections.lock(tx, shared.section)
    match step:
        case Write(change=change, versions_back=back):
            check_version(stored, max(1, stored.version - back))
            await working_context.rewrite(tx, stored, change, who)
        case Undo(versions_back=back):
            check_version(stored, max(1, stored.version - back))
            await working_context.undo(tx, stored, who)
        case Restore(number=number):
            await working_context.restore(tx, stored, number, who)
    return who


def expected(step: Step, text: str, history: list[Edit]) -> str:
    """What the text is after a step that succeeded."""
    match step:
        case Append(content=content):
            return f"{text}\n{content}" if text else content
        case Replace(old=old, new=""):
            kept = text.replace(old, "").split("\n")
            return "\n".join(line for line in kept if line.strip())
        case Replace(old=old, new=new):
            return text.replace(old, new)
        case Write(change=change):
            return text if change.text is None else change.text
        case Undo():
            return history[-2].text
        case Restore(number=number):
            return history[number - 1].text


async def state(tx: Transaction, shared: Shared) -> tuple[StoredSection, list[Edit]]:
    """The section, and its history from the first version on."""
    stored = await sections.read(tx, shared.section)
    history: list[Edit] = []
    last = None
    while page := await sections.history_page(
        tx, shared.section, PageQuery(3, last, descending=True)
    ):
        history += page
        last = page[-1].version
    cursor = await tx.execute(
        "SELECT char_length(content) AS length FROM sections WHERE id = %s", [shared.section]
    )
    row = await cursor.fetchone()
    assert row == {"length": len(stored.section.text)}
    return stored, history[::-1]


async def check(database: Database, steps: list[Step]) -> None:
    async with database.tenant(TENANT) as tx:
        shared = await shared_section(tx)
        now, history = await state(tx, shared)
    for step in steps:
        before, past = now, history
        try:
            async with database.tenant(TENANT) as tx:
                who = await act(tx, shared, step)
        except MemserverError:
            who = None
        async with database.tenant(TENANT) as tx:
            now, history = await state(tx, shared)
        assert now.section.text == history[-1].text
        assert [edit.version for edit in history] == list(range(1, now.version + 1))
        assert len(now.section.text) <= now.section.limit
        assert history[: len(past)] == past
        if who is None:
            assert (now, history) == (before, past)
            continue
        assert now.section.text == expected(step, before.section.text, past)
        assert len(history) - len(past) == (now.section.text != before.section.text)
        if len(history) > len(past):
            assert history[-1].editor == who
            restored = history[-1].restores
            assert (restored is not None) == isinstance(step, Undo | Restore)
            assert restored is None or history[restored - 1].text == now.section.text


def test_the_text_is_the_newest_version_and_no_version_is_missing(database: OneDatabase) -> None:
    with asyncio.Runner() as runner:
        opened = Database(database.app)
        runner.run(opened.open())

        @settings(max_examples=times(60, 2000), deadline=None)
        @given(st.lists(STEPS, max_size=12))
        @example([write("long enough"), write("short", limit=5), Undo(0), Restore(2), Undo(0)])
        @example([write("👩\u200d🔬" * 6), Append(0, "e\u0301"), Append(1, "e\u0301")])
        def holds(steps: list[Step]) -> None:
            runner.run(check(opened, steps))

        holds()
        runner.run(opened.close())
