"""The requests for working contexts and their sections, each once, for both clients."""

from uuid import UUID

from memserver.client.models import (
    Page,
    Reader,
    Section,
    SectionByItself,
    SectionVersion,
    WorkingContext,
)
from memserver.client.requests import Id, Order, PageRequest, Request, given, new_key, nothing

# --- of an agent


def get_working_context(agent: Id) -> Request[WorkingContext]:
    """The sections of the working context, in their order."""
    return Request(
        "GET",
        "/agents/{agent}/working-context",
        WorkingContext.model_validate,
        {"agent": agent},
    )


def get_section(agent: Id, section: str) -> Request[Section]:
    """One section as the agent has it."""
    return Request("GET", _OF_AGENT, Section.model_validate, _ids(agent, section))


def add_section(
    agent: Id,
    section: str,
    *,
    text: str | None = None,
    limit: int | None = None,
    description: str | None = None,
    place: int | None = None,
) -> Request[Section]:
    """Give the agent a new section of its own; `place` in its order counts from 1, left out: the end."""
    return Request(
        "POST",
        "/agents/{agent}/working-context",
        Section.model_validate,
        {"agent": agent},
        body=given(name=section, text=text, limit=limit, description=description, place=place),
        key=new_key(),
    )


def attach_section(
    agent: Id,
    section: str,
    section_id: Id,
    *,
    read_only: bool | None = None,
    place: int | None = None,
) -> Request[Section]:
    """Let the agent have a section that exists, under the name `section`.

    Args:
        agent: who gets it.
        section: its name for it.
        section_id: what it gets.
        read_only: whether its tools can't edit it.
        place: in its order, from 1; left out: the end.
    """
    return Request(
        "PUT",
        _OF_AGENT,
        Section.model_validate,
        _ids(agent, section),
        body=given(section_id=section_id, read_only=read_only, place=place),
    )


def edit_section(
    agent: Id,
    section: str,
    *,
    text: str | None = None,
    limit: int | None = None,
    description: str | None = None,
    name: str | None = None,
    read_only: bool | None = None,
    place: int | None = None,
    expected_version: int | None = None,
) -> Request[Section]:
    """Change a section, and how the agent has it. A running turn sees it at its next step.

    Args:
        agent: whose.
        section: its name for it.
        text: a new one.
        limit: characters.
        description: a new one.
        name: another one for this agent.
        read_only: whether its tools can't edit it.
        place: in its order, from 1.
        expected_version: the one that you saw; another one now is the error version_conflict.
    """
    body = given(
        text=text,
        limit=limit,
        description=description,
        name=name,
        read_only=read_only,
        place=place,
        expected_version=expected_version,
    )
    return Request("PATCH", _OF_AGENT, Section.model_validate, _ids(agent, section), body=body)


def detach_section(agent: Id, section: str) -> Request[None]:
    """Take a section from the agent. One made for it, and that no other agent has, is deleted."""
    return Request("DELETE", _OF_AGENT, nothing, _ids(agent, section))


def section_history(
    agent: Id,
    section: str,
    *,
    after: int | None = None,
    limit: int = 50,
    order: Order | None = None,
) -> PageRequest[SectionVersion, int]:
    """The versions of a section's text, newest first."""
    return PageRequest(
        "GET",
        f"{_OF_AGENT}/history",
        Page[SectionVersion, int].model_validate,
        _ids(agent, section),
        {"after": after, "limit": limit, "order": order},
    )


def undo_edit(agent: Id, section: str, *, expected_version: int | None = None) -> Request[Section]:
    """Take back the newest edit of a section."""
    return Request(
        "POST",
        f"{_OF_AGENT}/undo",
        Section.model_validate,
        _ids(agent, section),
        body=given(expected_version=expected_version),
        key=new_key(),
    )


def restore_version(
    agent: Id, section: str, version: int, *, expected_version: int | None = None
) -> Request[Section]:
    """Give a section the text of an older version again."""
    return Request(
        "POST",
        f"{_OF_AGENT}/restore",
        Section.model_validate,
        _ids(agent, section),
        body=given(version=version, expected_version=expected_version),
        key=new_key(),
    )


# --- sections by themselves


def create_section(
    name: str, *, text: str | None = None, limit: int | None = None, description: str | None = None
) -> Request[SectionByItself]:
    """Create a section that no agent has yet, to attach it to some."""
    body = given(name=name, text=text, limit=limit, description=description)
    return Request("POST", "/sections", SectionByItself.model_validate, body=body, key=new_key())


def list_sections(
    *, name: str | None = None, after: Id | None = None, limit: int = 50, order: Order | None = None
) -> PageRequest[SectionByItself, UUID]:
    """List the sections; `name` is their own."""
    query = {"name": name, "after": after, "limit": limit, "order": order}
    return PageRequest("GET", "/sections", Page[SectionByItself, UUID].model_validate, query=query)


def get_section_by_id(section_id: Id) -> Request[SectionByItself]:
    """Get one section."""
    ids = {"section_id": section_id}
    return Request("GET", _BY_ITSELF, SectionByItself.model_validate, ids)


def edit_section_by_id(
    section_id: Id,
    *,
    text: str | None = None,
    limit: int | None = None,
    description: str | None = None,
    name: str | None = None,
    expected_version: int | None = None,
) -> Request[SectionByItself]:
    """Change a section for all agents that have it; with a name of its own it stays until it is deleted."""
    body = given(
        text=text,
        limit=limit,
        description=description,
        name=name,
        expected_version=expected_version,
    )
    ids = {"section_id": section_id}
    return Request("PATCH", _BY_ITSELF, SectionByItself.model_validate, ids, body=body)


def delete_section(section_id: Id) -> Request[None]:
    """Delete a section with its history; refused while an agent has it."""
    return Request("DELETE", _BY_ITSELF, nothing, {"section_id": section_id})


def list_readers(
    section_id: Id, *, after: Id | None = None, limit: int = 50, order: Order | None = None
) -> PageRequest[Reader, UUID]:
    """List the agents that have a section."""
    return PageRequest(
        "GET",
        f"{_BY_ITSELF}/readers",
        Page[Reader, UUID].model_validate,
        {"section_id": section_id},
        {"after": after, "limit": limit, "order": order},
    )


def section_history_by_id(
    section_id: Id, *, after: int | None = None, limit: int = 50, order: Order | None = None
) -> PageRequest[SectionVersion, int]:
    """The versions of a section's text, newest first."""
    return PageRequest(
        "GET",
        f"{_BY_ITSELF}/history",
        Page[SectionVersion, int].model_validate,
        {"section_id": section_id},
        {"after": after, "limit": limit, "order": order},
    )


def undo_edit_by_id(
    section_id: Id, *, expected_version: int | None = None
) -> Request[SectionByItself]:
    """Take back the newest edit of a section."""
    return Request(
        "POST",
        f"{_BY_ITSELF}/undo",
        SectionByItself.model_validate,
        {"section_id": section_id},
        body=given(expected_version=expected_version),
        key=new_key(),
    )


def restore_version_by_id(
    section_id: Id, version: int, *, expected_version: int | None = None
) -> Request[SectionByItself]:
    """Give a section the text of an older version again."""
    return Request(
        "POST",
        f"{_BY_ITSELF}/restore",
        SectionByItself.model_validate,
        {"section_id": section_id},
        body=given(version=version, expected_version=expected_version),
        key=new_key(),
    )


_OF_AGENT = "/agents/{agent}/working-context/{section}"
_BY_ITSELF = "/sections/{section_id}"


def _ids(agent: Id, section: str) -> dict[str, Id]:
    return {"agent": agent, "section": section}
