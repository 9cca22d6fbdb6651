"""Bodies of requests for agents and timers; what texts, names and times of all requests have to be."""

import re
from typing import Annotated, Any, ClassVar, Self
from uuid import UUID

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    StringConstraints,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from typing_extensions import override

from memserver.agent.options import AgentOptionsIn
from memserver.errors import InvalidInput
from memserver.memory.attachments import MOST_SECTIONS
from memserver.memory.dates import storable
from memserver.memory.working_context import DEFAULT_LIMIT
from memserver.text import MOST_METADATA, is_within


def small_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """The metadata, if it is not too large. Raises ValueError."""
    if not is_within(metadata, MOST_METADATA):
        raise ValueError(f"it has more than {MOST_METADATA} characters, written as JSON")
    return metadata


Metadata = Annotated[dict[str, Any], AfterValidator(small_metadata)]
Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]


def _no_id(name: str) -> str:
    try:
        UUID(name)
    except ValueError:
        return name
    raise ValueError("a name can't have the form of an id: paths take either")


UniqueName = Annotated[Name, AfterValidator(_no_id)]
"""Of what a path names by its name or its id."""
SectionName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
CharacterLimit = Annotated[
    int, Field(ge=1, le=100_000, description="Characters, that is Unicode code points.")
]
SectionDescription = Annotated[str, StringConstraints(max_length=1000)]


def _written(moment: object) -> object:
    """A time as it is documented. pydantic takes a number as well, for seconds or milliseconds by its size."""
    if isinstance(moment, int | float) or (isinstance(moment, str) and _NUMBER.fullmatch(moment)):
        raise ValueError("write it as YYYY-MM-DDTHH:MM:SS+00:00")
    return moment


_NUMBER = re.compile(r"\s*[-+]?\d+(\.\d*)?\s*")
Moment = Annotated[AwareDatetime, BeforeValidator(_written), AfterValidator(storable)]
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


class RequestBody(BaseModel):
    """Base of request bodies: an unknown field is an error, not a typing mistake without effect."""

    model_config = ConfigDict(extra="forbid")


class Change(RequestBody):
    """Base of changes: what is left out stays."""

    nullable: ClassVar[frozenset[str]] = frozenset()

    @override
    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """The document says which can be null, too: in Python null stands for all that is left out."""
        schema = handler.resolve_ref_schema(handler(core_schema))
        for name, field in schema["properties"].items():
            if name not in cls.nullable:
                kinds = [kind for kind in field.pop("anyOf", ()) if kind != {"type": "null"}]
                field.pop("default", None)
                field.update(kinds[0] if len(kinds) == 1 else {"anyOf": kinds} if kinds else {})
        return schema

    def values(self) -> dict[str, Any]:
        """What is changed. Raises InvalidInput: it is null, and can't be."""
        changed = self.model_dump(exclude_unset=True)
        for name, value in changed.items():
            if value is None and name not in self.nullable:
                raise InvalidInput(f"{name}: can't be null.", hint="Leave it out to keep it.")
        return changed


class SectionIn(RequestBody):
    """A section of the working context, for a new agent."""

    name: SectionName = Field(examples=["notes"])
    text: LongText = Field(default="", examples=["Ada plays the cello."])
    limit: CharacterLimit = DEFAULT_LIMIT
    description: SectionDescription = ""


class AgentIn(RequestBody):
    """A new agent. Everything has a default."""

    name: UniqueName | None = Field(default=None, description="Unique; made up when left out.")
    model: Name | None = Field(default=None, description="Left out: the server's.")
    system_prompt: LongText | None = Field(
        default=None, description="Instructions instead of prompts/system.md."
    )
    sections: Annotated[list[SectionIn], Field(fail_fast=True)] | None = Field(
        default=None, max_length=MOST_SECTIONS, description="Left out: persona and human."
    )
    options: AgentOptionsIn = AgentOptionsIn()
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


class AgentChange(Change):
    """A change of an agent; what is left out stays."""

    nullable = frozenset({"model", "system_prompt"})

    name: UniqueName | None = Field(default=None, examples=["sam"])
    model: Name | None = Field(default=None, examples=["default"])
    system_prompt: LongText | None = Field(default=None, examples=["You are Sam."])
    options: AgentOptionsIn | None = None
    metadata: Metadata | None = Field(default=None, examples=[{"team": "support"}])
    language: Language | None = None


class ForkIn(RequestBody):
    """Where a fork ends, and its name."""

    name: UniqueName | None = Field(
        default=None, description="Left out: made up.", examples=["sam-2"]
    )
    position: int | None = Field(
        default=None,
        ge=0,
        lt=2**62,
        description="Of the last message that it has; left out: of the last turn that has ended.",
    )


class TimerIn(RequestBody):
    """What an agent is to be reminded of, and when: `at` a time, or `in_seconds`."""

    text: LongText = Field(description="What it reads then.")
    at: Moment | None = Field(default=None, description="When, with a zone.")
    in_seconds: float | None = Field(default=None, gt=0, le=315_360_000, description="From now.")

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"in_seconds": 86400, "text": "Ask how it went."}]},
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.at is None) == (self.in_seconds is None):
            raise ValueError("a timer has either `at` or `in_seconds`")
        return self
