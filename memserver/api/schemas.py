"""The API's resources as pydantic models, and how they are read from our own values."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from memserver.agent.events import TurnEnded, TurnPaused
from memserver.agent.options import AgentOptions
from memserver.memory.archival import ArchivalPage, SearchMode
from memserver.memory.attachments import MOST_SECTIONS
from memserver.memory.recall import RecallPage
from memserver.memory.recall_meaning import MeaningPage
from memserver.memory.text import clean_json
from memserver.memory.working_context import DEFAULT_LIMIT
from memserver.messages import FoundPassage, Message, Passage, Retriever, Usage, WaitsFor
from memserver.storage.agents import Agent
from memserver.storage.collections import Collection
from memserver.storage.inbox import Turn

Name = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=200),
]
SectionName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
CharacterLimit = Annotated[
    int, Field(ge=1, le=100_000, description="Characters, that is Unicode code points.")
]
SectionDescription = Annotated[str, StringConstraints(max_length=1000)]
LongText = Annotated[str, StringConstraints(max_length=1_000_000)]


class Request(BaseModel):
    """Base of request bodies: an unknown field is an error, not a typing mistake without effect.

    Text is cleaned here, at the boundary, before anything looks at it.
    """

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _cleaned(cls, body: Any) -> Any:  # noqa: ANN401 - not validated yet
        return clean_json(body)


class ErrorBody(BaseModel):
    """What went wrong; `code` is stable, `message` and `hint` are for people."""

    code: str
    message: str
    hint: str = ""


class ErrorResponse(BaseModel):
    """The body of every answer that is not a success."""

    error: ErrorBody


class SectionIn(Request):
    """A section of the working context, for a new agent."""

    name: SectionName
    text: LongText = ""
    limit: CharacterLimit = DEFAULT_LIMIT
    description: SectionDescription = ""


class AgentIn(Request):
    """A new agent. Everything has a default."""

    name: Name | None = Field(default=None, description="Unique; made up when left out.")
    model: Name | None = Field(default=None, description="Left out: the server's.")
    system_prompt: LongText | None = Field(
        default=None, description="Instructions instead of prompts/system.md."
    )
    sections: list[SectionIn] | None = Field(
        default=None, max_length=MOST_SECTIONS, description="Left out: persona and human."
    )
    options: AgentOptions = AgentOptions()
    metadata: dict[str, Any] = Field(default_factory=dict)

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

    name: Name | None = None
    model: Name | None = None
    system_prompt: LongText | None = None
    options: AgentOptions | None = None
    metadata: dict[str, Any] | None = None


class AgentOut(BaseModel):
    """An agent."""

    id: UUID
    name: str
    model: str | None
    system_prompt: str | None
    options: AgentOptions
    metadata: dict[str, Any]
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
            created_at=agent.created_at,
            updated_at=agent.updated_at,
        )


class AgentPage(BaseModel):
    """A page of agents; `next` is the cursor of the following page, or null."""

    items: list[AgentOut]
    next: UUID | None


class MessageIn(Request):
    """Something a person says to the agent."""

    text: LongText = Field(description="What they say.", examples=["Hi, I am Ada."])
    stream: bool = Field(default=False, description="Answer as server-sent events.")


class ToolCallOut(BaseModel):
    """A call that the agent made, and what came of it."""

    id: str
    name: str
    arguments: dict[str, Any]
    state: Literal["pending", "running", "waiting", "done", "failed", "interrupted"]
    waits_for: WaitsFor | None = Field(
        description="Of a call that waits or has waited: for approval, or for the caller's result."
    )
    result: str | None
    finished_at: datetime | None


class MessageOut(BaseModel):
    """One entry of the history. `position` identifies it within its agent and orders the history."""

    position: int
    role: Literal["user", "assistant", "system"]
    text: str
    thought: str
    tool_call: ToolCallOut | None
    tokens: int
    created_at: datetime

    @classmethod
    def read(cls, message: Message) -> Self:
        """From a stored message."""
        record = message.call
        return cls(
            position=message.position,
            role=message.role,
            text=message.text,
            thought=message.thought,
            tool_call=None
            if record is None
            else ToolCallOut(
                id=record.call.id,
                name=record.call.name,
                arguments=dict(record.call.arguments),
                state=record.state,
                waits_for=record.waits_for,
                result=record.result,
                finished_at=record.finished_at,
            ),
            tokens=message.tokens,
            created_at=message.created_at,
        )


class MessagePage(BaseModel):
    """A page of the history; `next` is the cursor of the following page, or null."""

    items: list[MessageOut]
    next: int | None


class UsageOut(BaseModel):
    """Tokens of a turn's model calls, as the endpoint counted them."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int

    @classmethod
    def read(cls, usage: Usage) -> Self:
        """From a turn's usage."""
        return cls(
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            cached_tokens=usage.cached_tokens,
        )


class TurnOut(BaseModel):
    """A turn: one message (or one import) and what became of it."""

    turn: int
    kind: Literal["message", "import"]
    state: Literal["waiting", "running", "requires_action", "done", "failed"]
    steps: int
    stop_reason: str | None = Field(
        description="message_sent, terminal_tool, no_heartbeat, max_steps, cancelled, imported or error; "
        "null before the end."
    )
    error: ErrorBody | None
    usage: UsageOut
    created_at: datetime
    finished_at: datetime | None

    @classmethod
    def read(cls, turn: Turn) -> Self:
        """From a stored turn."""
        return cls(
            turn=turn.turn,
            kind=turn.kind,
            state=turn.state,
            steps=turn.steps,
            stop_reason=turn.stop_reason,
            error=ErrorBody(**turn.error) if turn.error else None,
            usage=UsageOut.read(turn.usage),
            created_at=turn.created_at,
            finished_at=turn.finished_at,
        )


class Answer(BaseModel):
    """What came of a message: the agent's text, and every step behind it."""

    turn: int
    text: str = Field(description="What the agent said; several messages are joined by newlines.")
    stop_reason: str = Field(
        description="As of a turn; requires_action if the last message's call waits for an answer."
    )
    steps: int
    usage: UsageOut
    messages: list[MessageOut]

    @classmethod
    def of(cls, ended: TurnEnded | TurnPaused, messages: list[Message]) -> Self:
        """From a turn that has ended, or waits."""
        said = [
            message.text for message in messages if message.role == "assistant" and message.text
        ]
        return cls(
            turn=ended.turn,
            text="\n".join(said),
            stop_reason=ended.stop_reason,
            steps=ended.steps,
            usage=UsageOut.read(ended.usage),
            messages=[MessageOut.read(message) for message in messages],
        )


class PastMessage(Request):
    """A message from before, with its own time."""

    role: Literal["user", "assistant"]
    text: LongText
    created_at: AwareDatetime | None = Field(
        default=None, description="With a zone; left out: now."
    )


class ImportIn(Request):
    """Past messages, oldest first."""

    messages: list[PastMessage] = Field(min_length=1, max_length=10_000)


class FoundMessage(MessageOut):
    """A message that was found; `score` is its cosine similarity, in a search by meaning."""

    score: float | None = None


class CoverageOut(BaseModel):
    """How much of an agent's history can be found by meaning."""

    embedded: int = Field(description="Messages that have been embedded.")
    messages: int = Field(description="Messages that there are.")
    complete: bool = Field(description="Whether all of turns that have ended are embedded.")


class RecallResults(BaseModel):
    """One page of a recall search. Behind a cursor nothing is counted: total and pages are null."""

    items: list[FoundMessage]
    total: int | None = Field(
        default=None, description="How many match; by meaning alone, how many are ordered."
    )
    total_is_exact: bool = Field(
        default=True, description="False: there are more than `total`, and than `pages`."
    )
    page: int | None = None
    pages: int | None = None
    next: str | None = Field(
        default=None, description="The cursor of what follows, for `after`; null: nothing does."
    )
    coverage: CoverageOut | None = Field(default=None, description="In a search by meaning.")

    @classmethod
    def of(cls, found: RecallPage) -> Self:
        """From a page that was found."""
        return cls(
            items=[FoundMessage.read(message) for message in found.messages],
            total=found.total,
            total_is_exact=found.exact,
            page=found.page.number,
            pages=found.page.pages(found.total),
            next=found.next,
        )

    @classmethod
    def by_meaning(cls, found: MeaningPage) -> Self:
        """From a page that was found by meaning."""
        items = [FoundMessage.read(message) for message in found.messages]
        return cls(
            items=[
                item.model_copy(update={"score": score})
                for item, score in zip(items, found.scores, strict=True)
            ],
            total=found.total,
            total_is_exact=found.exact,
            page=found.page.number,
            pages=found.page.pages(found.total),
            coverage=CoverageOut(**asdict(found.coverage)),
        )


class PassageIn(Request):
    """A passage for archival storage."""

    text: LongText
    tags: list[Name] = Field(default_factory=list, max_length=100)
    metadata: dict[str, Any] = Field(default_factory=dict)
    created_at: AwareDatetime | None = None


class PassagesIn(Request):
    """Passages to insert, all or none."""

    passages: list[PassageIn] = Field(min_length=1, max_length=1000)


class PassageOut(BaseModel):
    """A passage."""

    id: UUID
    collection_id: UUID
    text: str
    tags: list[str]
    metadata: dict[str, Any]
    created_at: datetime
    updated_at: datetime

    @classmethod
    def read(cls, passage: Passage) -> Self:
        """From a stored passage."""
        return cls(**_passage_fields(passage))


class SourceOut(BaseModel):
    """Which retriever found a passage, at which place, with what score of its own."""

    retriever: Retriever
    rank: int
    score: float = Field(description="Of vector: cosine similarity, -1 to 1. Of text: unbounded.")


class FoundPassageOut(PassageOut):
    """A passage that a search found, with its score and where that comes from."""

    score: float
    sources: list[SourceOut]

    @classmethod
    def of(cls, found: FoundPassage) -> Self:
        """From what a search found."""
        return cls(
            **_passage_fields(found.passage),
            score=found.score,
            sources=[
                SourceOut(retriever=source.retriever, rank=source.rank, score=source.score)
                for source in found.sources
            ],
        )


def _passage_fields(passage: Passage) -> dict[str, Any]:
    return {
        "id": UUID(passage.id),
        "collection_id": UUID(passage.collection_id),
        "text": passage.text,
        "tags": list(passage.tags),
        "metadata": dict(passage.metadata),
        "created_at": passage.created_at,
        "updated_at": passage.updated_at,
    }


class PassagesOut(BaseModel):
    """Passages as they were stored, in the order of the request."""

    items: list[PassageOut]


class PassagePage(BaseModel):
    """A page of passages; `next` is the cursor of the following page, or null."""

    items: list[PassageOut]
    next: UUID | None


class ArchivalResults(BaseModel):
    """One page of an archival search, best first."""

    items: list[FoundPassageOut]
    total: int = Field(
        description="The passages that can be found. A search by words alone finds those that hold one; "
        "any other all that the filter lets through, of which 10,000 are counted."
    )
    reachable: int = Field(description="How many of them, the best, can be paged.")
    page: int
    pages: int
    mode: SearchMode

    @classmethod
    def read(cls, found: ArchivalPage) -> Self:
        """From what was found."""
        return cls(
            items=[FoundPassageOut.of(hit) for hit in found.found],
            total=found.total,
            reachable=found.reachable,
            page=found.page.number,
            pages=found.page.pages(found.reachable),
            mode=found.mode,
        )


class PassagePatch(Request):
    """A change of a passage; what is left out stays. `tags` and `metadata` are replaced as a whole."""

    text: LongText | None = None
    tags: list[Name] | None = Field(default=None, max_length=100)
    metadata: dict[str, Any] | None = None


class CollectionIn(Request):
    """A new collection that agents can share."""

    name: Name = Field(description="Unique among the shared collections.")
    description: str = Field(default="", max_length=10_000)
    metadata: dict[str, Any] = Field(default_factory=dict)
    language: str = Field(
        default="english",
        max_length=63,
        description="By which words are stemmed: a text search configuration of Postgres; "
        "'simple' takes them as they are.",
    )


class CollectionPatch(Request):
    """A change of a collection; what is left out stays. `metadata` is replaced as a whole."""

    name: Name | None = None
    description: str | None = Field(default=None, max_length=10_000)
    metadata: dict[str, Any] | None = None


class CollectionOut(BaseModel):
    """A collection."""

    id: UUID
    name: str
    own: bool = Field(description="Whether it is an agent's own.")
    description: str
    metadata: dict[str, Any]
    language: str
    embedding_model: str
    dimension: int
    passage_count: int
    created_at: datetime
    edited_at: datetime

    @classmethod
    def read(cls, collection: Collection) -> Self:
        """From a stored collection."""
        return cls(**{name: getattr(collection, name) for name in cls.model_fields})


class CollectionPage(BaseModel):
    """A page of collections; `next` is the cursor of the following page, or null."""

    items: list[CollectionOut]
    next: UUID | None


class AgentCollections(BaseModel):
    """What an agent searches: its own collection first, then those attached to it."""

    items: list[CollectionOut]


class ContextPart(BaseModel):
    """One part of the prompt."""

    name: str
    tokens: int
    text: str


class ContextOut(BaseModel):
    """What the prompt holds now."""

    window: int = Field(description="Tokens of prompt and output together.")
    reserved: int = Field(description="Tokens kept free for the output.")
    used: int = Field(description="Tokens of the prompt, as the model counts.")
    token_scale: float = Field(
        description="The model's tokens for each one of our own count, learnt from its usage; "
        "all numbers here are the model's."
    )
    parts: list[ContextPart]
    queue: list[MessageOut]
    summary_failure: str | None = Field(
        description="Why the newest summary is an extract and not the model's, if so."
    )


class Health(BaseModel):
    """The server answers."""

    status: Literal["ok"]
    version: str


class Component(BaseModel):
    """One thing that the server needs."""

    name: str
    ready: bool
    detail: str


class Readiness(BaseModel):
    """Whether turns can be answered now, and if not, what is missing."""

    ready: bool
    components: list[Component]
