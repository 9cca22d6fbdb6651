"""The working context: named sections, written by tools and by the API, each with a limit.

An edit locks its section for the rest of the transaction, so that two edits never lose one another. A
text that stays as it is makes no version. Characters are code points, as Postgres counts them too.
"""

from dataclasses import asdict, dataclass, replace
from uuid import UUID

from memserver.errors import Conflict, InvalidInput, ToolError, VersionConflict
from memserver.messages import MemorySection
from memserver.storage import sections
from memserver.storage.database import Transaction
from memserver.storage.sections import Editor, StoredSection

DEFAULT_PERSONA = "I am a friendly companion with a good memory. I keep my answers short and warm."
DEFAULT_LIMIT = 2000


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A change of a section from outside; None leaves a thing as it is."""

    text: str | None = None
    limit: int | None = None
    description: str | None = None


def default_sections() -> tuple[MemorySection, ...]:
    return (
        MemorySection("persona", DEFAULT_PERSONA, DEFAULT_LIMIT, "Who you are."),
        MemorySection("human", "", DEFAULT_LIMIT, "What you know of the person you talk with."),
    )


async def append(tx: Transaction, agent_id: UUID, name: str, content: str, editor: Editor) -> str:
    """Add a line to a section, as the agent's tool does; returns the section's new text."""
    stored = await _lock_for_tool(tx, agent_id, name)
    if not content.strip():
        raise InvalidInput("There is nothing to append: content is empty.")
    old = stored.section.text
    return await _edit(tx, stored, f"{old}\n{content}" if old else content, editor)


async def replace_text(
    tx: Transaction, agent_id: UUID, name: str, old: str, new: str, editor: Editor
) -> str:
    """Replace every occurrence of `old`, as the agent's tool does; an empty `new` deletes.

    Returns the section's new text.
    """
    stored = await _lock_for_tool(tx, agent_id, name)
    text = stored.section.text
    if not old:
        raise InvalidInput(
            "old_content is empty. Name the exact text to replace, or append instead."
        )
    if old not in text:
        raise InvalidInput(
            f"{old!r} was not found in section {name!r}. It must match the text exactly."
        )
    replaced = text.replace(old, new)
    if not new:
        replaced = "\n".join(line for line in replaced.split("\n") if line.strip())
    return await _edit(tx, stored, replaced, editor)


async def rewrite(
    tx: Transaction, stored: StoredSection, change: Rewrite, editor: Editor
) -> StoredSection:
    """Give a locked section a whole new text, another limit or description. Raises InvalidInput."""
    old = stored.section
    changes = {name: value for name, value in asdict(change).items() if value is not None}
    new = replace(old, **changes)
    if new == old:
        return stored
    if new.text == old.text and len(old.text) > new.limit:
        raise InvalidInput(
            f"Section {old.name!r} has {len(old.text)} characters, more than a limit of "
            f"{new.limit}.",
            hint="Shorten the text first, or send a shorter one together with the limit.",
        )
    check_limit(new)
    return await sections.write(tx, stored, new, editor)


async def restore(
    tx: Transaction, stored: StoredSection, number: int, editor: Editor
) -> StoredSection:
    """Give a locked section the text that it had in an earlier version. That is an edit as any other."""
    text = (await sections.version(tx, stored.id, number)).text
    section = stored.section
    if text == section.text:
        return stored
    if len(text) > section.limit:
        raise InvalidInput(
            f"Version {number} has {len(text)} characters; section {section.name!r} holds at most "
            f"{section.limit} now.",
            hint="Raise the limit first.",
        )
    return await sections.write(tx, stored, replace(section, text=text), editor, restores=number)


async def undo(tx: Transaction, stored: StoredSection, editor: Editor) -> StoredSection:
    """Restore the version before a locked section's newest one; doing so twice changes nothing."""
    if stored.version == 1:
        raise Conflict(f"Section {stored.section.name!r} was not edited yet: nothing to undo.")
    return await restore(tx, stored, stored.version - 1, editor)


def check_version(stored: StoredSection, expected: int | None) -> None:
    """Raise VersionConflict unless the locked section's text is the one that the caller saw; None is any."""
    if expected is not None and expected != stored.version:
        raise VersionConflict(
            f"Section {stored.section.name!r} is at version {stored.version}, not {expected}.",
            hint="Read it again, and decide by the new text.",
        )


def check_limit(section: MemorySection) -> None:
    if len(section.text) > section.limit:
        raise InvalidInput(
            f"Section {section.name!r} holds at most {section.limit} characters; with this edit it "
            f"would have {len(section.text)}. Shorten it, replace older content, or use "
            "archival_memory_insert."
        )


async def _lock_for_tool(tx: Transaction, agent_id: UUID, name: str) -> StoredSection:
    stored = await sections.lock_of(tx, agent_id, name)
    if stored.section.read_only:
        raise ToolError(f"Section {name!r} is read-only: you can't edit it.")
    return stored


async def _edit(tx: Transaction, stored: StoredSection, text: str, editor: Editor) -> str:
    new = replace(stored.section, text=text)
    check_limit(new)
    if new != stored.section:
        await sections.write(tx, stored, new, editor)
    return text
