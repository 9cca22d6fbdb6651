"""Bodies of requests for sections of working contexts."""

from uuid import UUID

from pydantic import Field

from memserver.api.schemas.agents import (
    CharacterLimit,
    LongText,
    Name,
    RequestBody,
    SectionDescription,
    SectionIn,
    SectionName,
)
from memserver.memory.working_context import DEFAULT_LIMIT

ExpectedVersion = Field(
    default=None,
    ge=1,
    description="The version that you saw; another one now is the error version_conflict.",
)
Place = Field(
    default=None, ge=1, le=1_000_000, description="In the agent's order, from 1; left out: the end."
)
ReadOnly = Field(default=None, description="The agent's tools can't edit it.")


class AgentSectionIn(SectionIn):
    """A new section of an agent's own."""

    place: int | None = Place


class SectionByItselfIn(RequestBody):
    """A new section that no agent has yet."""

    name: Name = Field(examples=["team"])
    text: LongText = Field(default="", examples=["Ada leads it."])
    limit: CharacterLimit = DEFAULT_LIMIT
    description: SectionDescription = Field(default="", examples=["Who is who."])


class Attachment(RequestBody):
    """A section that exists, for an agent to have."""

    section_id: UUID
    read_only: bool | None = ReadOnly
    place: int | None = Place


class SectionEdit(RequestBody):
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


class Undo(RequestBody):
    """Which edit to undo: the newest."""

    expected_version: int | None = ExpectedVersion


NEWEST = Undo()
"""The body that may be left out."""


class Restore(RequestBody):
    """Which version's text to take."""

    version: int = Field(ge=1, le=2**62, examples=[2])
    expected_version: int | None = ExpectedVersion
