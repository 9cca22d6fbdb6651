"""The agent file's records. What they mean is written in docs/moving.md; a change of them is a new VERSION."""

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
)

from memserver.memory.dates import storable
from memserver.messages import Role, WaitsFor
from memserver.storage.sections import Actor
from memserver.storage.tools import DefinitionKind
from memserver.text import MOST_METADATA, is_within

FORMAT = "memserver-agent"
VERSION = 5
MANIFEST = "manifest.json"
END = "end.json"

MOST_JSON = 2_000_000
"""Characters of a call's arguments and the like, written as JSON: a model can't have written more."""
Number = Annotated[int, Field(ge=0, lt=2**62)]
Small = Annotated[int, Field(ge=0, lt=2**31)]
SectionName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
Time = Annotated[AwareDatetime, AfterValidator(storable)]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


def _within(most: int) -> AfterValidator:
    def check(value: dict[str, Any]) -> dict[str, Any]:
        if not is_within(value, most):
            raise ValueError(f"it has more than {most} characters, written as JSON")
        return value

    return AfterValidator(check)


# A document's passage has fields of ours beside its own.
Metadata = Annotated[dict[str, Any], _within(2 * MOST_METADATA)]
Json = Annotated[dict[str, Any], _within(MOST_JSON)]


class FileRecord(BaseModel):
    """Base of them: an unknown field is one that this version doesn't know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Vectors(FileRecord):
    """Which embedding model the passages' vectors are of."""

    model: str
    dimension: Annotated[int, Field(ge=1, le=4000)]


class Manifest(BaseModel):
    """What kind of file it is. `version` is read before anything else is."""

    model_config = ConfigDict(extra="allow", frozen=True)

    format: Literal["memserver-agent"]
    version: Annotated[int, Field(ge=1)]
    made_by: str = ""
    exported_at: Time | None = None
    vectors: Vectors | None = None


class State(FileRecord):
    """Where the agent stands in its history."""

    done_turn: Annotated[int, Field(ge=0, lt=2**50)]
    queue_start: Number = 0
    pressure_warned: bool = False
    token_scale: Annotated[float, Field(gt=0, lt=1e6)] | None = None
    token_scale_model: str | None = None
    memory_edited_at: Time | None = None
    stats_messages: Number = 0
    stats_edited_at: Time | None = None


RENAMED_OPTIONS = {"protocol": "reply_mode", "embed_recall": None}
"""That the database and older files may have, with their names now; None: agents have it no more."""


class AgentRecord(FileRecord):
    """The agent; `collections` names those that are attached, `language` is its own collection's."""

    id: UUID | None = None
    name: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    model: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None
    system_prompt: str | None = None
    options: Metadata = Field(default_factory=dict)
    metadata: Metadata = Field(default_factory=dict)
    language: str = "auto"
    collection_description: str = ""
    collection_metadata: Metadata = Field(default_factory=dict)
    collections: list[str] = Field(default_factory=list)
    created_at: Time | None = None
    updated_at: Time | None = None
    state: State

    @field_validator("options")
    @classmethod
    def _as_named_now(cls, options: dict[str, Any]) -> dict[str, Any]:
        named = {RENAMED_OPTIONS.get(name, name): value for name, value in options.items()}
        return {name: value for name, value in named.items() if name is not None}


class SectionRecord(FileRecord):
    name: SectionName
    text: str
    limit: Annotated[int, Field(ge=1, le=100_000)]
    description: str = ""
    read_only: bool = False
    version: Annotated[int, Field(ge=1, lt=2**62)] = 1
    updated_at: Time | None = None


class EditRecord(FileRecord):
    """One version of a section; `own`: this agent made it, or somebody through it."""

    section: SectionName
    version: Annotated[int, Field(ge=1, lt=2**62)]
    text: str
    actor: Actor
    own: bool = False
    position: Number | None = None
    restores: Number | None = None
    created_at: Time


class DefinitionRecord(FileRecord):
    """A tool that the tenant registered. Secrets are not in the file."""

    kind: DefinitionKind
    description: str
    parameters: Json
    timeout: Annotated[float, Field(gt=0, le=600)] | None = None
    url: str | None = None
    retries: Annotated[int, Field(ge=0, le=10)] = 0
    mcp_server: str | None = None


class ToolRecord(FileRecord):
    """What the agent says of a tool; without `definition` the tool is the server's."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    attached: bool = True
    approval: bool = False
    first: bool = False
    terminal: bool = False
    required: bool = False
    max_calls: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    definition: DefinitionRecord | None = None


class SummaryRecord(FileRecord):
    """A version of the recursive summary: of what stands before position `until`.

    `outdated`: messages that it had taken up were deleted, and it was not written again yet.
    """

    until: Number
    text: str
    tokens: Small
    evicted: Small
    method: Literal["model", "extractive"]
    failure: str | None = None
    outdated: bool = False
    created_at: Time


class TurnRecord(FileRecord):
    turn: Annotated[int, Field(ge=1, lt=2**50)]
    kind: Literal["message", "import"]
    state: Literal["done", "failed"]
    steps: Small = 0
    attempts: Small = 0
    stop_reason: str | None = None
    error: Json | None = None
    prompt_tokens: Number = 0
    completion_tokens: Number = 0
    cached_tokens: Number = 0
    idempotency_key: str | None = None
    fingerprint: str | None = None
    created_at: Time
    started_at: Time | None = None
    finished_at: Time | None = None


class CallPart(FileRecord):
    id: str
    name: str
    arguments: Json
    state: Literal["done", "failed", "interrupted"]
    result: str
    waits_for: WaitsFor | None = None
    answer: Json | None = None
    created_at: Time
    finished_at: Time | None = None


class FieldsPart(FileRecord):
    """What a model's message and its call came with beyond the standard; they go back to this model only."""

    model: Annotated[str, StringConstraints(max_length=1000)]
    message: Json = Field(default_factory=dict)
    call: Json = Field(default_factory=dict)
    tokens: Small = 0


class ShownPart(FileRecord):
    digest: Digest
    media_type: Annotated[str, StringConstraints(pattern=r"^image/(png|jpeg|gif|webp)$")]
    width: Annotated[int, Field(ge=1, lt=2**31)]
    height: Annotated[int, Field(ge=1, lt=2**31)]
    name: Annotated[str, StringConstraints(max_length=200)] = ""


class PictureRecord(FileRecord):
    """The bytes of a picture that messages show, in base64."""

    digest: Digest
    data: str


class MessageRecord(FileRecord):
    position: Number
    role: Role
    text: str
    thought: str = ""
    tokens: Small
    created_at: Time
    call: CallPart | None = None
    fields: FieldsPart | None = None
    chat: str | None = None
    chat_note: str | None = None
    pictures: list[ShownPart] | None = None
    expires_at: Time | None = None


class PassageRecord(FileRecord):
    """A passage of the agent's own collection; `vector`: little-endian 16-bit floats in base64."""

    id: UUID | None = None
    number: Annotated[int, Field(ge=1, lt=2**62)] | None = None
    text: Annotated[str, StringConstraints(min_length=1)]
    tags: list[str] = Field(default_factory=list)
    metadata: Metadata = Field(default_factory=dict)
    created_at: Time
    updated_at: Time | None = None
    expires_at: Time | None = None
    vector: str | None = None


class TimerRecord(FileRecord):
    """A text that becomes an event at its time."""

    text: Annotated[str, StringConstraints(min_length=1)]
    due: Time


LISTS: dict[str, type[FileRecord]] = {
    "sections": SectionRecord,
    "edits": EditRecord,
    "tools": ToolRecord,
    "summaries": SummaryRecord,
    "turns": TurnRecord,
    "messages": MessageRecord,
    "passages": PassageRecord,
    "pictures": PictureRecord,
    "timers": TimerRecord,
}
"""The lists of a file in their order; each is a member NAME.jsonl."""
SINCE = {"pictures": 4, "timers": 5}
"""The versions of the format that the later lists came with."""


class End(FileRecord):
    """The last member: how many lines each list has."""

    lines: dict[str, Number]
