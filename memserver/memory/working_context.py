"""The working context: named sections, written by tools and by the API, each with a limit.

An edit locks its section for the rest of the transaction, so that two edits never lose one another.
"""

from uuid import UUID

from memserver.errors import InvalidInput
from memserver.messages import Section
from memserver.storage import sections
from memserver.storage.database import Transaction
from memserver.storage.sections import Actor, StoredSection

DEFAULT_PERSONA = "I am a friendly companion with a good memory. I keep my answers short and warm."
DEFAULT_LIMIT = 2000


def default_sections() -> tuple[Section, ...]:
    """What a new agent's working context is made of."""
    return (
        Section("persona", DEFAULT_PERSONA, DEFAULT_LIMIT, "Who you are."),
        Section("human", "", DEFAULT_LIMIT, "What you know of the person you talk with."),
    )


async def append(
    tx: Transaction, agent_id: UUID, name: str, content: str, actor: Actor = "tool"
) -> str:
    """Add a line to a section; returns the section's new text.

    Raises:
        NotFound: no such section.
        InvalidInput: nothing to add, or the limit would be exceeded.
    """
    stored = await sections.lock(tx, agent_id, name)
    if not content.strip():
        raise InvalidInput("There is nothing to append: content is empty.")
    old = stored.section.text
    return await _store(tx, agent_id, stored, f"{old}\n{content}" if old else content, actor)


async def replace(
    tx: Transaction, agent_id: UUID, name: str, old: str, new: str, actor: Actor = "tool"
) -> str:
    """Replace every occurrence of `old`; an empty `new` deletes. Returns the section's new text.

    Raises:
        NotFound: no such section.
        InvalidInput: `old` isn't in it, or the limit would be exceeded.
    """
    stored = await sections.lock(tx, agent_id, name)
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
    return await _store(tx, agent_id, stored, replaced, actor)


async def rewrite(
    tx: Transaction, agent_id: UUID, name: str, text: str | None, limit: int | None
) -> Section:
    """Give a section a whole new text or another limit, as the API does.

    Raises:
        NotFound: no such section.
        InvalidInput: the text is longer than the limit.
    """
    stored = await sections.lock(tx, agent_id, name)
    section = stored.section
    if limit is not None:
        _check_limit(name, section.text if text is None else text, limit)
        await sections.set_limit(tx, stored.id, limit)
        section = Section(section.name, section.text, limit, section.description)
    if text is not None:
        await _store(tx, agent_id, StoredSection(stored.id, section), text, "api")
        section = Section(section.name, text, section.limit, section.description)
    return section


async def _store(
    tx: Transaction, agent_id: UUID, stored: StoredSection, text: str, actor: Actor
) -> str:
    _check_limit(stored.section.name, text, stored.section.limit)
    await sections.write(tx, agent_id, stored.id, text, actor)
    return text


def _check_limit(name: str, text: str, limit: int) -> None:
    if len(text) > limit:
        raise InvalidInput(
            f"Section {name!r} holds at most {limit} characters; with this edit it would have "
            f"{len(text)}. Shorten it, replace older content, or use archival_memory_insert."
        )
