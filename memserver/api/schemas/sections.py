"""The working context's resources: sections, how an agent has them, and their history."""

from datetime import datetime
from typing import Literal, Self
from uuid import UUID

from pydantic import BaseModel, Field

from memserver.api.schemas.agents import (
    CharacterLimit,
    LongText,
    Name,
    Request,
    SectionDescription,
    SectionIn,
    SectionName,
)
from memserver.memory.working_context import DEFAULT_LIMIT
from memserver.storage.agent_sections import Reader
from memserver.storage.inbox import PLACES_PER_TURN
from memserver.storage.sections import Edit, StoredSection

ExpectedVersion = Field(
    default=None,
    ge=1,
    description="The version that you saw; another one now is the error version_conflict.",
)
Place = Field(
    default=None, ge=1, le=1_000_000, description="In the agent's order, from 1; left out: the end."
)
ReadOnly = Field(default=None, description="The agent's tools can't edit it.")


class SectionOut(BaseModel):
    """A section as it is now; `name` is its own, null if it was made for an agent."""

    id: UUID
    name: str | None = Field(examples=["team"])
    text: str = Field(examples=["Ada leads it."])
    limit: int = Field(examples=[2000])
    description: str = Field(examples=["Who is who."])
    version: int = Field(description="Of the text; grows by one with each edit.", examples=[3])
    readers: int = Field(description="Agents that have it.", examples=[2])
    updated_at: datetime

    @classmethod
    def read(cls, stored: StoredSection) -> Self:
        """From a section by itself."""
        section = stored.section
        return cls(
            id=stored.id,
            name=section.name or None,
            text=section.text,
            limit=section.limit,
            description=section.description,
            version=stored.version,
            readers=stored.readers,
            updated_at=stored.updated_at,
        )


class AgentSectionOut(BaseModel):
    """A section as an agent has it, under the agent's name for it."""

    id: UUID
    name: str = Field(examples=["human"])
    text: str = Field(examples=["Name: Ada"])
    limit: int = Field(examples=[2000])
    description: str = Field(examples=["The user."])
    version: int = Field(description="Of the text; grows by one with each edit.", examples=[3])
    read_only: bool = Field(description="The agent's tools can't edit it.")
    readers: int = Field(description="Agents that have it, this one among them.", examples=[1])
    updated_at: datetime

    @classmethod
    def read(cls, stored: StoredSection) -> Self:
        """From an agent's section."""
        section = stored.section
        return cls(
            id=stored.id,
            name=section.name,
            text=section.text,
            limit=section.limit,
            description=section.description,
            version=stored.version,
            read_only=section.read_only,
            readers=stored.readers,
            updated_at=stored.updated_at,
        )


class WorkingContext(BaseModel):
    """All sections of an agent, in their order."""

    sections: list[AgentSectionOut]


class AgentSectionIn(SectionIn):
    """A new section of an agent's own."""

    place: int | None = Place


class SectionByItselfIn(Request):
    """A new section that no agent has yet."""

    name: Name = Field(examples=["team"])
    text: LongText = Field(default="", examples=["Ada leads it."])
    limit: CharacterLimit = DEFAULT_LIMIT
    description: SectionDescription = Field(default="", examples=["Who is who."])


class Attachment(Request):
    """A section that exists, for an agent to have."""

    section_id: UUID
    read_only: bool | None = ReadOnly
    place: int | None = Place


class SectionEdit(Request):
    """A change of a section; what is left out stays."""

    text: LongText | None = Field(default=None, examples=["Name: Ada"])
    limit: CharacterLimit | None = None
    description: SectionDescription | None = None
    expected_version: int | None = ExpectedVersion


class SectionByItselfEdit(SectionEdit):
    """A change of a section by itself; with a name of its own it stays until it is deleted."""

    name: Name | None = None


class AgentSectionEdit(SectionEdit):
    """A change of a section, and of how this agent has it; what is left out stays."""

    name: SectionName | None = Field(default=None, description="Another one for this agent.")
    read_only: bool | None = ReadOnly
    place: int | None = Field(
        default=None, ge=1, le=1_000_000, description="In the agent's order, from 1."
    )


class Undo(Request):
    """Which edit to undo: the newest."""

    expected_version: int | None = ExpectedVersion


NEWEST = Undo()
"""The body that may be left out."""


class Restore(Request):
    """Which version's text to take."""

    version: int = Field(ge=1, le=2**62, examples=[2])
    expected_version: int | None = ExpectedVersion


class EditOut(BaseModel):
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

    @classmethod
    def read(cls, edit: Edit) -> Self:
        """From a stored edit."""
        who = edit.editor
        return cls(
            version=edit.version,
            text=edit.text,
            actor=who.actor,
            agent_id=who.agent_id,
            turn=None if who.position is None else who.position // PLACES_PER_TURN,
            position=who.position,
            restores=edit.restores,
            created_at=edit.created_at,
        )


class History(BaseModel):
    """A page of versions, newest first; `next` is the cursor of the following page, or null."""

    items: list[EditOut]
    next: int | None = Field(examples=[None])


class SectionPage(BaseModel):
    """A page of sections; `next` is the cursor of the following page, or null."""

    items: list[SectionOut]
    next: UUID | None


class ReaderOut(BaseModel):
    """An agent that has a section, and how."""

    agent_id: UUID
    agent_name: str = Field(examples=["sam"])
    section: str = Field(description="The agent's name for it.", examples=["team"])
    read_only: bool

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """From a stored one."""
        return cls(
            agent_id=reader.agent_id,
            agent_name=reader.agent_name,
            section=reader.section,
            read_only=reader.read_only,
        )


class ReaderPage(BaseModel):
    """A page of readers; `next` is the cursor of the following page, or null."""

    items: list[ReaderOut]
    next: UUID | None
