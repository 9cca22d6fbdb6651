"""Values that travel between the layers and are never changed. They know nothing of SQL, HTTP or a wire format.

Those of which a prompt has many are not declared frozen: a frozen dataclass is made three times as slowly.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

JsonObject = dict[str, Any]
JsonValue = Any
"""Any JSON."""
Role = Literal["user", "assistant", "system"]
CallState = Literal["pending", "running", "waiting", "done", "failed", "interrupted"]
WaitsFor = Literal["approval", "client"]
"""Whose answer a waiting call waits for: a person's approval, or the result from the caller."""


RESERVED = ("inner_thought", "request_heartbeat")
"""Arguments that a call has beside the tool's own."""


@dataclass(slots=True)
class FunctionCall:
    """One call that the model made, its arguments already checked against the tool's schema."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model sees it.

    Attributes:
        parameters: a JSON schema of type object.
        forgiving: arguments that the schema doesn't know are left out instead of refused.
    """

    name: str
    description: str
    parameters: JsonObject
    forgiving: bool = False


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of one or several model calls, as the endpoint counted them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0

    def __add__(self, other: "TokenUsage") -> "TokenUsage":
        return TokenUsage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cached_tokens + other.cached_tokens,
        )

    def __sub__(self, other: "TokenUsage") -> "TokenUsage":
        return TokenUsage(
            max(0, self.prompt_tokens - other.prompt_tokens),
            max(0, self.completion_tokens - other.completion_tokens),
            max(0, self.cached_tokens - other.cached_tokens),
        )


@dataclass(frozen=True, slots=True)
class ProviderFields:
    """What a model's message came with beyond the standard, such as reasoning_content or thought_signature.

    Some providers refuse a history without them. They go back to the same model, as they came, and to no other.

    Attributes:
        model: what the endpoint calls the model that wrote them.
        message: fields of the assistant's message.
        call: fields of its tool call, beside id, type and function; those inside its function stand in `function`.
        tokens: how many of its message's tokens they are.
    """

    model: str
    message: Mapping[str, Any] = field(default_factory=dict)
    call: Mapping[str, Any] = field(default_factory=dict)
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture that a message shows; `digest` is the SHA-256 of its bytes, which are read only for a model."""

    digest: str
    media_type: str
    width: int
    height: int
    name: str = ""
    data: bytes = field(default=b"", repr=False)

    @property
    def tokens(self) -> int:
        """About as many as models count: https://docs.anthropic.com/en/docs/build-with-claude/vision."""
        return min(1600, max(85, self.width * self.height // 750))


@dataclass(slots=True)
class PromptMessage:
    """One message of a prompt, before a provider's wire format.

    `call` is set for an assistant's step (the call it made) and for a tool's result (the call it
    answers); `text` is then the prose beside the call, or the result. `pictures` are the user's.
    """

    role: Literal["system", "user", "assistant", "tool"]
    text: str
    call: FunctionCall | None = None
    fields: ProviderFields | None = None
    pictures: tuple[Picture, ...] = ()


@dataclass(slots=True)
class CallRecord:
    """A tool call as it is stored: with its state and, once it has ended, its result.

    `waits_for` is set for one that waits or has waited; `answer` once somebody has answered.
    """

    call: FunctionCall
    state: CallState
    result: str | None = None
    finished_at: datetime | None = None
    waits_for: WaitsFor | None = None
    answer: JsonObject | None = None

    @property
    def is_open(self) -> bool:
        """Whether it has no result yet, so that no prompt may show it."""
        return self.state in ("pending", "running", "waiting")


@dataclass(slots=True)
class Entry:
    """One entry of an agent's history, which is recall storage.

    `position` identifies it within its agent and orders the history: turn number x 1000 + place in
    the turn, so that an answer stands right after what it answers, however much arrived meanwhile.
    `tokens` counts the entry as it stands in a prompt, a call's result and provider fields included. `chat`
    is the client's chat that a message of the user's belongs to, and `chat_note` what the prompt says before it
    of a change of chats. At `expires_at` it is erased.
    """

    position: int
    role: Role
    text: str
    created_at: datetime
    tokens: int
    thought: str = ""
    call: CallRecord | None = None
    fields: ProviderFields | None = None
    chat: str | None = None
    chat_note: str | None = None
    pictures: tuple[Picture, ...] = ()
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class StoredPassage:
    """One passage of archival storage; `number` counts those of its collection in the order of their insertion."""

    id: str
    collection_id: str
    text: str
    created_at: datetime
    updated_at: datetime
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    number: int = 0
    expires_at: datetime | None = None


Retriever = Literal["vector", "text"]


@dataclass(frozen=True, slots=True)
class PassageSource:
    """Which retriever found a passage: at which place, from 1, and with what score of its own.

    A score of the retriever "vector" is the cosine similarity, -1 to 1; one of "text" has no upper bound.
    """

    retriever: Retriever
    rank: int
    score: float


@dataclass(frozen=True, slots=True)
class PassageHit:
    """A passage that a search found; `score` orders the results, the sources say where it comes from.

    `label` is what an agent calls it: p17, or p17@handbook in a shared collection.
    """

    passage: StoredPassage
    score: float
    sources: tuple[PassageSource, ...]
    label: str


@dataclass(frozen=True, slots=True)
class MemorySection:
    """One named section of the working context; `limit` is in characters, that is code points.

    `read_only`: the agent's tools can't edit it.
    """

    name: str
    text: str
    limit: int
    description: str = ""
    read_only: bool = False


Prompt = Sequence[PromptMessage]
ToolSpecs = Sequence[ToolSpec]
