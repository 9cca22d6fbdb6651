"""What the API answers, as frozen values. A field that a newer server adds is ignored.

The names and meanings are those of the API's own schema; a test compares the two.
"""

from datetime import datetime
from typing import Any, Generic, Literal, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict

T = TypeVar("T")
C = TypeVar("C", bound=UUID | int)

SearchMode = Literal["hybrid", "vector", "text"]


class Record(BaseModel):
    """Base of what the server answers."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Page(Record, Generic[T, C]):
    """One page of a list; `next` is the cursor of the following page, or None."""

    items: list[T]
    next: C | None

    def __len__(self) -> int:
        return len(self.items)


class AgentOptions(Record):
    """An agent's own settings; what it leaves out is the server's setting.

    Attributes:
        context_window: tokens of prompt and output.
        max_output_tokens: tokens kept free for one step's output.
        max_steps: model steps in one turn.
        must_reply: whether a message is answered before the turn ends.
        prompt_order: whether the working context comes before the messages or behind them.
        timezone: of dates without a zone, an IANA name.
    """

    context_window: int | None = None
    max_output_tokens: int | None = None
    max_steps: int | None = None
    must_reply: bool = True
    prompt_order: Literal["working_context_first", "working_context_last"] | None = None
    timezone: str = "UTC"


class Agent(Record):
    """An agent; `model` and `system_prompt` are None where they are the server's."""

    id: UUID
    name: str
    model: str | None
    system_prompt: str | None
    options: AgentOptions
    metadata: dict[str, Any]
    created_at: datetime
    updated_at: datetime


class ToolCall(Record):
    """A call that the agent made, and what came of it."""

    id: str
    name: str
    arguments: dict[str, Any]
    state: Literal["pending", "running", "waiting", "done", "failed", "interrupted"]
    result: str | None
    finished_at: datetime | None


class Message(Record):
    """One entry of the history; `position` identifies it within its agent and orders the history."""

    position: int
    role: Literal["user", "assistant", "system"]
    text: str
    thought: str
    tool_call: ToolCall | None
    tokens: int
    created_at: datetime


class Usage(Record):
    """Tokens of a turn's model calls, as the endpoint counted them."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


class Answer(Record):
    """What came of a message: `text` is all that the agent said, `messages` every step behind it."""

    turn: int
    text: str
    stop_reason: str
    steps: int
    usage: Usage
    messages: list[Message]


class ErrorDetails(Record):
    """What went wrong in a turn; `code` is stable."""

    code: str
    message: str
    hint: str = ""


class Turn(Record):
    """A message, or an import, and what became of it."""

    turn: int
    kind: Literal["message", "import"]
    state: Literal["waiting", "running", "done", "failed"]
    steps: int
    stop_reason: str | None
    error: ErrorDetails | None
    usage: Usage
    created_at: datetime
    finished_at: datetime | None


class Section(Record):
    """A section of a working context; `limit` is in characters."""

    name: str
    text: str
    limit: int
    description: str


class WorkingContext(Record):
    """All sections of an agent."""

    sections: list[Section]

    def __getitem__(self, name: str) -> Section:
        """The section of this name. Raises KeyError."""
        for section in self.sections:
            if section.name == name:
                return section
        raise KeyError(name)


class ContextPart(Record):
    """One part of a prompt, with its size in tokens."""

    name: str
    tokens: int
    text: str


class ContextView(Record):
    """What an agent's prompt holds now; all sizes are tokens as the model counts them.

    Attributes:
        window: of prompt and output together.
        reserved: kept free for the output.
        used: of the prompt.
        token_scale: the model's tokens for each one of the server's own count.
        parts: the prompt, part by part.
        queue: the messages in it.
        summary_failure: why the newest summary is an extract and not the model's, if so.
    """

    window: int
    reserved: int
    used: int
    token_scale: float
    parts: list[ContextPart]
    queue: list[Message]
    summary_failure: str | None

    @property
    def fullness(self) -> float:
        """How much of what a prompt may hold is used: 0 is empty, 1 is full."""
        return self.used / max(1, self.window - self.reserved)


class RecallResults(Record):
    """One page of a recall search; `total` counts all that match."""

    items: list[Message]
    total: int
    page: int
    pages: int


class Passage(Record):
    """A passage of archival storage."""

    id: UUID
    collection_id: UUID
    text: str
    tags: list[str]
    metadata: dict[str, Any]
    created_at: datetime
    updated_at: datetime


class Source(Record):
    """Which retriever found a passage, at which place, with what score of its own."""

    retriever: Literal["vector", "text"]
    rank: int
    score: float


class FoundPassage(Passage):
    """A passage that a search found; `score` orders the results."""

    score: float
    sources: list[Source]


class Passages(Record):
    """Passages as they were stored, in the order of the request."""

    items: list[Passage]


class ArchivalResults(Record):
    """One page of an archival search, best first.

    Attributes:
        items: what was found.
        total: how many passages could be found.
        reachable: how many of them, the best, can be paged.
        page: of this page, from 1.
        pages: how many there are.
        mode: which retrievers looked.
    """

    items: list[FoundPassage]
    total: int
    reachable: int
    page: int
    pages: int
    mode: SearchMode


class Collection(Record):
    """A collection of passages; `own` is whether it is an agent's own."""

    id: UUID
    name: str
    own: bool
    description: str
    metadata: dict[str, Any]
    language: str
    embedding_model: str
    dimension: int
    passage_count: int
    created_at: datetime
    edited_at: datetime


class AgentCollections(Record):
    """What an agent searches: its own collection first, then those attached to it."""

    items: list[Collection]


class Health(Record):
    """The server answers."""

    status: Literal["ok"]
    version: str


class Component(Record):
    """One thing that the server needs."""

    name: str
    ready: bool
    detail: str


class Readiness(Record):
    """Whether turns can be answered now, and what is missing if not."""

    ready: bool
    components: list[Component]
