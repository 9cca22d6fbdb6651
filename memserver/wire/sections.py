"""Sections of working contexts: as agents have them, by themselves, and their history."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import BeforeValidator, Field

from memserver.wire.base import Record, stored_as


class SectionByItself(Record):
    """A section as it is now; `name` is its own, null if it was made for an agent."""

    id: UUID
    name: Annotated[str | None, BeforeValidator(lambda name: name or None)] = Field(
        examples=["team"], validation_alias=stored_as("name", "section", "name")
    )
    text: str = Field(
        examples=["Ada leads it."], validation_alias=stored_as("text", "section", "text")
    )
    limit: int = Field(
        description="In characters.",
        examples=[2000],
        validation_alias=stored_as("limit", "section", "limit"),
    )
    description: str = Field(
        examples=["Who is who."],
        validation_alias=stored_as("description", "section", "description"),
    )
    version: int = Field(description="Of the text; grows by one with each edit.", examples=[3])
    readers: int = Field(description="Agents that have it.", examples=[2])
    updated_at: datetime


class Section(SectionByItself):
    """A section as an agent has it, under the agent's name for it."""

    name: str = Field(examples=["human"], validation_alias=stored_as("name", "section", "name"))
    read_only: bool = Field(
        description="The agent's tools can't edit it.",
        validation_alias=stored_as("read_only", "section", "read_only"),
    )


class WorkingContext(Record):
    """All sections of an agent, in their order."""

    sections: list[Section]

    def __getitem__(self, name: str) -> Section:
        """The section of this name. Raises KeyError."""
        for section in self.sections:
            if section.name == name:
                return section
        raise KeyError(name)


class SectionVersion(Record):
    """One version of a section's text, and who wrote it."""

    version: int = Field(examples=[3])
    text: str = Field(examples=["Name: Ada"])
    actor: Literal["tool", "api", "import"] = Field(description="By which way the edit came.")
    agent_id: UUID | None = Field(
        description="Whose tool it was, or through which agent the API was asked."
    )
    turn: int | None = Field(description="The agent's turn, if it was a tool.", examples=[1])
    position: int | None = Field(
        description="The tool's call in the agent's history.", examples=[1001]
    )
    restores: int | None = Field(
        description="The older version whose text it took, if it did.", examples=[None]
    )
    created_at: datetime


class Reader(Record):
    """An agent that has a section, and how."""

    agent_id: UUID
    agent_name: str = Field(examples=["sam"])
    section: str = Field(description="The agent's name for it.", examples=["team"])
    read_only: bool
