"""Sections of working contexts."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from memserver.client.models.base import Record


class SectionByItself(Record):
    """A section as it is now; `name` is its own, None if it was made for an agent.

    Attributes:
        limit: in characters.
        version: of the text; grows by one with each edit.
        readers: agents that have it.
    """

    id: UUID
    name: str | None
    text: str
    limit: int
    description: str
    version: int
    readers: int
    updated_at: datetime


class Section(Record):
    """A section as an agent has it, under the agent's name for it.

    Attributes:
        limit: in characters.
        version: of the text; grows by one with each edit.
        read_only: the agent's tools can't edit it.
        readers: agents that have it, this one among them.
    """

    id: UUID
    name: str
    text: str
    limit: int
    description: str
    version: int
    read_only: bool
    readers: int
    updated_at: datetime


class WorkingContext(Record):
    """All sections of an agent."""

    sections: list[Section]

    def __getitem__(self, name: str) -> Section:
        """The section of this name. Raises KeyError."""
        for section in self.sections:
            if section.name == name:
                return section
        raise KeyError(name)


class SectionVersion(Record):
    """One version of a section's text, and who wrote it.

    Attributes:
        actor: by which way the edit came.
        agent_id: whose tool it was, or through which agent the API was asked.
        turn: the agent's, if it was a tool.
        position: the tool's call in the agent's history.
        restores: the older version whose text it took, if it did.
    """

    version: int
    text: str
    actor: Literal["tool", "api", "import"]
    agent_id: UUID | None
    turn: int | None
    position: int | None
    restores: int | None
    created_at: datetime


class Reader(Record):
    """An agent that has a section, under its own name for it."""

    agent_id: UUID
    agent_name: str
    section: str
    read_only: bool
