"""Working contexts: sections as agents have them, and by themselves."""

from typing import TypedDict, Unpack
from uuid import UUID

from memserver.client.methods import Resource, TransportT, items, method
from memserver.client.models import (
    Page,
    Reader,
    Section,
    SectionByItself,
    SectionVersion,
    WorkingContext,
)
from memserver.client.requests import Id, Paged, Request, delete, get, given, patch, post, put

_ALL = "/agents/{agent}/working-context"
_OF_AGENT = f"{_ALL}/{{section}}"
_BY_ITSELF = "/sections/{section_id}"


class SectionChange(TypedDict, total=False):
    """A change of a section, and of how an agent has it; what is left out stays, and so does what is None."""

    text: str | None
    limit: int | None
    description: str | None
    name: str | None
    read_only: bool | None
    place: int | None
    expected_version: int | None


class WorkingContexts(Resource[TransportT]):
    """Working contexts: the sections that agents have, by the agents' names for them."""

    @method
    def get(self, agent: Id) -> Request[WorkingContext]:
        """The sections of the working context, in their order."""
        return get(_ALL, WorkingContext, agent=agent)

    @method
    def section(self, agent: Id, section: str) -> Request[Section]:
        """One section as the agent has it."""
        return get(_OF_AGENT, Section, agent=agent, section=section)

    @method
    def add(
        self,
        agent: Id,
        section: str,
        *,
        text: str | None = None,
        limit: int | None = None,
        description: str | None = None,
        place: int | None = None,
    ) -> Request[Section]:
        """Give the agent a new section of its own; `place` in its order counts from 1, left out: the end."""
        body = given(name=section, text=text, limit=limit, description=description, place=place)
        return post(_ALL, Section, body, agent=agent)

    @method
    def attach(
        self,
        agent: Id,
        section: str,
        section_id: Id,
        *,
        read_only: bool | None = None,
        place: int | None = None,
    ) -> Request[Section]:
        """Let the agent have a section that exists, under the name `section`.

        Args:
            agent: which gets it.
            section: its name for it.
            section_id: what it gets.
            read_only: whether its tools can't edit it.
            place: in its order, from 1; left out: the end.
        """
        body = given(section_id=section_id, read_only=read_only, place=place)
        return put(_OF_AGENT, Section, body, agent=agent, section=section)

    @method
    def edit(self, agent: Id, section: str, **change: Unpack[SectionChange]) -> Request[Section]:
        """Change a section, and how the agent has it. A running turn sees it at its next step.

        Args:
            agent: whose.
            section: its name for it.
            **change: a new `text`, `limit` (characters) or `description`; another `name` for this agent;
                `read_only`: whether its tools can't edit it; its `place` in the order, from 1;
                `expected_version`: the one that you saw; another one now is the error version_conflict.
        """
        return patch(_OF_AGENT, Section, given(**change), agent=agent, section=section)

    @method
    def detach(self, agent: Id, section: str) -> Request[None]:
        """Take a section from the agent. One made for it, and that no other agent has, is deleted."""
        return delete(_OF_AGENT, agent=agent, section=section)

    @method
    def history(
        self, agent: Id, section: str, **page: Unpack[Paged[int]]
    ) -> Request[Page[SectionVersion, int]]:
        """The versions of a section's text, newest first."""
        ids = {"agent": agent, "section": section}
        return get(f"{_OF_AGENT}/history", Page[SectionVersion, int], page, **ids)

    all_history = items(history.build)

    @method
    def undo(
        self, agent: Id, section: str, *, expected_version: int | None = None
    ) -> Request[Section]:
        """Take back the newest edit of a section."""
        body = given(expected_version=expected_version)
        return post(f"{_OF_AGENT}/undo", Section, body, agent=agent, section=section)

    @method
    def restore(
        self, agent: Id, section: str, version: int, *, expected_version: int | None = None
    ) -> Request[Section]:
        """Give a section the text of an older version again."""
        body = given(version=version, expected_version=expected_version)
        return post(f"{_OF_AGENT}/restore", Section, body, agent=agent, section=section)


class Sections(Resource[TransportT]):
    """Sections by themselves, which agents can share."""

    @method
    def create(
        self,
        name: str,
        *,
        text: str | None = None,
        limit: int | None = None,
        description: str | None = None,
    ) -> Request[SectionByItself]:
        """Create a section that no agent has yet, to attach it to some."""
        body = given(name=name, text=text, limit=limit, description=description)
        return post("/sections", SectionByItself, body)

    @method
    def list(
        self, *, name: str | None = None, **page: Unpack[Paged[Id]]
    ) -> Request[Page[SectionByItself, UUID]]:
        """List the sections; `name` is their own."""
        query = {"name": name, **page}
        return get("/sections", Page[SectionByItself, UUID], query)

    all = items(list.build)

    @method
    def get(self, section_id: Id) -> Request[SectionByItself]:
        """Get one section."""
        return get(_BY_ITSELF, SectionByItself, section_id=section_id)

    @method
    def edit(
        self,
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
        return patch(_BY_ITSELF, SectionByItself, body, section_id=section_id)

    @method
    def delete(self, section_id: Id) -> Request[None]:
        """Delete a section with its history; refused while an agent has it."""
        return delete(_BY_ITSELF, section_id=section_id)

    @method
    def readers(self, section_id: Id, **page: Unpack[Paged[Id]]) -> Request[Page[Reader, UUID]]:
        """List the agents that have a section."""
        return get(f"{_BY_ITSELF}/readers", Page[Reader, UUID], page, section_id=section_id)

    all_readers = items(readers.build)

    @method
    def history(
        self, section_id: Id, **page: Unpack[Paged[int]]
    ) -> Request[Page[SectionVersion, int]]:
        """The versions of a section's text, newest first."""
        path = f"{_BY_ITSELF}/history"
        return get(path, Page[SectionVersion, int], page, section_id=section_id)

    all_history = items(history.build)

    @method
    def undo(
        self, section_id: Id, *, expected_version: int | None = None
    ) -> Request[SectionByItself]:
        """Take back the newest edit of a section."""
        body = given(expected_version=expected_version)
        return post(f"{_BY_ITSELF}/undo", SectionByItself, body, section_id=section_id)

    @method
    def restore(
        self, section_id: Id, version: int, *, expected_version: int | None = None
    ) -> Request[SectionByItself]:
        """Give a section the text of an older version again."""
        body = given(version=version, expected_version=expected_version)
        return post(f"{_BY_ITSELF}/restore", SectionByItself, body, section_id=section_id)
