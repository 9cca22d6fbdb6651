"""The API's resources as pydantic models, and how they are read from our own values."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
)

from memserver.agent.options import AgentOptions
from memserver.memory.attachments import MOST_SECTIONS
from memserver.memory.working_context import DEFAULT_LIMIT
from memserver.storage.agents import Agent
from memserver.text import MOST_METADATA, is_within


def _storable(moment: datetime) -> datetime:
    if not _EARLIEST <= moment <= _LATEST:
        raise ValueError("the year must be from 1 to 9999, with a day to spare at both ends")
    return moment


_EARLIEST = datetime(1, 1, 2, tzinfo=UTC)
_LATEST = datetime(9999, 12, 30, tzinfo=UTC)


def small_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """The metadata, if it is not too large. Raises ValueError."""
    if not is_within(metadata, MOST_METADATA):
        raise ValueError(f"it has more than {MOST_METADATA} characters, written as JSON")
    return metadata


Metadata = Annotated[dict[str, Any], AfterValidator(small_metadata)]
Name = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=200),
]
SectionName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
CharacterLimit = Annotated[
    int, Field(ge=1, le=100_000, description="Characters, that is Unicode code points.")
]
SectionDescription = Annotated[str, StringConstraints(max_length=1000)]
Moment = Annotated[AwareDatetime, AfterValidator(_storable)]
"""A time with its zone, which Postgres and Python both have wherever it is shown."""
LongText = Annotated[str, StringConstraints(max_length=1_000_000)]
Language = Annotated[
    str,
    Field(
        max_length=63,
        description="By which words are stemmed: a text search configuration of Postgres, 'simple', which takes them "
        "as they are, or 'auto': each passage by the language that it is in.",
        examples=["auto"],
    ),
]


class Request(BaseModel):
    """Base of request bodies: an unknown field is an error, not a typing mistake without effect."""

    model_config = ConfigDict(extra="forbid")


class ErrorBody(BaseModel):
    """What went wrong; `code` is stable, `message` and `hint` are for people."""

    code: str = Field(examples=["not_found"])
    message: str = Field(examples=["There is no such thing."])
    hint: str = ""


class ErrorResponse(BaseModel):
    """The body of every answer that is not a success."""

    error: ErrorBody


class SectionIn(Request):
    """A section of the working context, for a new agent."""

    name: SectionName = Field(examples=["notes"])
    text: LongText = Field(default="", examples=["Ada plays the cello."])
    limit: CharacterLimit = DEFAULT_LIMIT
    description: SectionDescription = ""


class AgentIn(Request):
    """A new agent. Everything has a default."""

    name: Name | None = Field(default=None, description="Unique; made up when left out.")
    model: Name | None = Field(default=None, description="Left out: the server's.")
    system_prompt: LongText | None = Field(
        default=None, description="Instructions instead of prompts/system.md."
    )
    sections: Annotated[list[SectionIn], Field(fail_fast=True)] | None = Field(
        default=None, max_length=MOST_SECTIONS, description="Left out: persona and human."
    )
    options: AgentOptions = AgentOptions()
    metadata: Metadata = Field(default_factory=dict)
    language: Language = "auto"

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "name": "sam",
                    "sections": [
                        {"name": "persona", "text": "I am Sam. I am curious and brief."},
                        {"name": "human", "text": "Name: Ada"},
                    ],
                }
            ]
        },
    )


class AgentChange(Request):
    """A change of an agent; what is left out stays."""

    name: Name | None = Field(default=None, examples=["sam"])
    model: Name | None = Field(default=None, examples=["default"])
    system_prompt: LongText | None = Field(default=None, examples=["You are Sam."])
    options: AgentOptions | None = None
    metadata: Metadata | None = Field(default=None, examples=[{"team": "support"}])
    language: Language | None = None


class AgentOut(BaseModel):
    """An agent."""

    id: UUID
    name: str = Field(examples=["sam"])
    model: str | None = Field(examples=[None])
    system_prompt: str | None = Field(examples=[None])
    options: AgentOptions
    metadata: dict[str, Any]
    language: str = Field(description="Of its own collection.", examples=["auto"])
    message_count: int = Field(description="In recall storage.", examples=[0])
    created_at: datetime
    updated_at: datetime

    @classmethod
    def read(cls, agent: Agent) -> Self:
        """From a stored agent."""
        return cls(
            id=agent.id,
            name=agent.name,
            model=agent.model,
            system_prompt=agent.system_prompt,
            options=AgentOptions.model_validate(agent.options),
            metadata=agent.metadata,
            language=agent.language,
            message_count=agent.message_count,
            created_at=agent.created_at,
            updated_at=agent.updated_at,
        )


class AgentPage(BaseModel):
    """A page of agents; `next` is the cursor of the following page, or null."""

    items: list[AgentOut]
    next: UUID | None


class Health(BaseModel):
    """The server answers."""

    status: Literal["ok"]
    version: str = Field(examples=["1.0.0"])


class Component(BaseModel):
    """One thing that the server needs."""

    name: str = Field(examples=["model"])
    ready: bool
    detail: str = Field(examples=["answers"])


class Readiness(BaseModel):
    """Whether turns can be answered now, and if not, what is missing."""

    ready: bool
    components: list[Component]
