"""Messages, turns and recall storage; what a prompt holds."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from memserver.messages import CallState, Role, WaitsFor
from memserver.wire.base import ErrorDetails, Record, stored_as

FoundBy = Literal["exact", "words", "meaning"]
"""What found a message: the very text; its words, in any order and form; what it means."""
RecallMode = Literal["hybrid", "exact", "words", "meaning"]
"""What a search looks by; hybrid is all three."""


class ToolCall(Record):
    """A call that the agent made, and what came of it."""

    id: str = Field(examples=["k3Xv90TqZ"], validation_alias=stored_as("id", "call", "id"))
    name: str = Field(examples=["send_message"], validation_alias=stored_as("name", "call", "name"))
    arguments: dict[str, Any] = Field(
        examples=[{"message": "Hello Ada!"}],
        validation_alias=stored_as("arguments", "call", "arguments"),
    )
    state: CallState = Field(examples=["done"])
    waits_for: WaitsFor | None = Field(
        default=None,
        description="Of a call that waits or has waited: for approval, or for the caller's result.",
        examples=[None],
    )
    result: str | None = Field(examples=["Sent."])
    finished_at: datetime | None


class ShownPicture(Record):
    """A picture that a message shows; the text has its name."""

    digest: str = Field(description="SHA-256 of its bytes.", examples=["9f86d081884c7d65"])
    media_type: str = Field(examples=["image/png"])
    width: int = Field(description="In pixels.", examples=[640])
    height: int = Field(examples=[480])
    name: str = Field(examples=["cat.png"])


class Message(Record):
    """One entry of the history. `position` identifies it within its agent and orders the history."""

    position: int = Field(examples=[1001])
    role: Role = Field(examples=["assistant"])
    text: str = Field(examples=["Hello Ada!"])
    thought: str = Field(examples=["She gives me her name."])
    tool_call: ToolCall | None = Field(validation_alias=stored_as("tool_call", "call"))
    tokens: int = Field(examples=[23])
    created_at: datetime
    pictures: list[ShownPicture] = Field(default_factory=list, examples=[[]])
    chat: str | None = Field(
        default=None,
        description="Of a user's message: the chat of a front end that it belongs to, if there are several.",
        examples=[None],
    )
    expires_at: datetime | None = Field(
        default=None, description="When it is deleted; null: never.", examples=[None]
    )


class Usage(Record):
    """Tokens of a turn's model calls, as the endpoint counted them."""

    prompt_tokens: int = Field(examples=[1520])
    completion_tokens: int = Field(examples=[41])
    cached_tokens: int = Field(examples=[1408])


class WaitingCall(Record):
    """A call that waits for somebody's answer."""

    agent_id: UUID
    turn: int = Field(examples=[4])
    position: int = Field(examples=[4001])
    call_id: str = Field(examples=["k3Xv90TqZ"])
    name: str = Field(examples=["weather"])
    arguments: dict[str, Any] = Field(examples=[{"city": "Graz"}])
    waits_for: WaitsFor
    created_at: datetime
    expires_at: datetime = Field(description="When its turn continues without an answer.")


BlockedBy = Annotated[
    WaitingCall | None,
    Field(
        description="The call of an earlier turn that waits for an answer, if this one waits for that."
    ),
]


class Turn(Record):
    """A turn: one message (or one import) and what became of it."""

    turn: int = Field(examples=[1])
    kind: Literal["message", "import"]
    state: Literal["waiting", "running", "requires_action", "done", "failed"] = Field(
        examples=["done"]
    )
    steps: int = Field(examples=[1])
    stop_reason: str | None = Field(
        description="message_sent, terminal_tool, no_heartbeat, max_steps, cancelled, superseded, expired, imported or error; "
        "null before the end.",
        examples=["message_sent"],
    )
    error: ErrorDetails | None = Field(examples=[None])
    usage: Usage
    created_at: datetime
    finished_at: datetime | None
    blocked_by: BlockedBy = None


class Answer(Record):
    """What came of a message: the agent's text, and every step that led to it."""

    turn: int = Field(examples=[1])
    text: str = Field(
        description="What the agent said; between several messages is an empty line.",
        examples=["Hello Ada!"],
    )
    stop_reason: str = Field(
        description="As of a turn; requires_action if the last message's call waits for an answer, "
        "queued if an earlier turn's does, with 202.",
        examples=["message_sent"],
    )
    steps: int = Field(examples=[1])
    usage: Usage
    messages: list[Message]
    blocked_by: BlockedBy = None

    @property
    def waiting(self) -> ToolCall | None:
        """The call with which the turn waits for an approval or a result, if it does."""
        last = self.messages[-1].tool_call if self.messages else None
        return last if last is not None and self.stop_reason == "requires_action" else None


class FoundMessage(Message):
    """A message that was found."""

    found_by: list[FoundBy] = Field(
        default_factory=list,
        description="exact: it holds the very text; words: some of its words, in any form; meaning.",
        examples=[["exact"]],
    )
    score: float | None = Field(
        default=None, description="Cosine similarity, if it was found by meaning.", examples=[None]
    )
    label: str = Field(description="What the agent calls it.", examples=["m1001"])
    excerpt: str = Field(
        description="What matched, between `**`, with its surroundings.",
        examples=["**Hello** Ada!"],
    )


class Coverage(Record):
    """How much of an agent's history can be found by meaning."""

    embedded: int = Field(description="Messages that have been embedded.", examples=[240])
    messages: int = Field(description="Messages that there are.", examples=[242])
    complete: bool = Field(description="Whether all of turns that have ended are embedded.")


class RecallResults(Record):
    """One page of a recall search. After a cursor nothing is counted: total and pages are null."""

    items: list[FoundMessage]
    total: int | None = Field(
        default=None,
        description="How many are found: all that hold the very text, and the best by words and meaning.",
        examples=[1],
    )
    total_is_exact: bool = Field(
        default=True, description="False: there are more than `total`, and than `pages`."
    )
    page: int | None = Field(default=None, examples=[1])
    pages: int | None = Field(default=None, examples=[1])
    next: str | None = Field(
        default=None, description="The cursor of what follows, for `after`; null: nothing does."
    )
    coverage: Coverage | None = Field(default=None, description="Where meaning was looked for.")


class ContextPart(Record):
    """One part of the prompt."""

    name: str = Field(examples=["working_context"])
    tokens: int = Field(examples=[58])
    text: str = Field(examples=["<human>Name: Ada</human>"])


class ContextModel(Record):
    """The model that sees the prompt, and how its endpoint is asked."""

    name: str = Field(description="What the endpoint calls it.", examples=["gpt-5"])
    window_is_assumed: bool = Field(
        description="Whether nobody has said how large its window is.", examples=[False]
    )
    mode: str = Field(
        description="tools, json_schema or text; auto before the first turn.", examples=["tools"]
    )
    profile: dict[str, str | bool | None] = Field(
        description="What its endpoint takes otherwise than vLLM does.",
        examples=[{"output_limit": "max_completion_tokens"}],
    )
    changes: list[str] = Field(
        description="What was found out by a refusal, or by an answer that was none, in words.",
        examples=[["output_limit is max_completion_tokens, not max_tokens: the endpoint said …"]],
    )


class ContextView(Record):
    """What the prompt holds now."""

    window: int = Field(description="Tokens of prompt and output together.", examples=[8192])
    reserved: int = Field(description="Tokens kept free for the output.", examples=[1024])
    used: int = Field(description="Tokens of the prompt, as the model counts.", examples=[1520])
    token_scale: float = Field(
        description="The model's tokens for each one of our own count, learnt from its usage; "
        "all numbers here are the model's.",
        examples=[1.0],
    )
    parts: list[ContextPart]
    queue: list[Message] = Field(description="The messages in it.")
    summary_failure: str | None = Field(
        description="Why the newest summary is an extract and not the model's, if so.",
        examples=[None],
    )
    model: ContextModel

    @property
    def fullness(self) -> float:
        """How much of what a prompt may hold is used: 0 is empty, 1 is full."""
        return self.used / max(1, self.window - self.reserved)


class Expiring(Record):
    """How many messages expire at a time, or don't any more."""

    messages: int = Field(examples=[2])


class Erased(Record):
    """What a deletion of messages did."""

    messages: int = Field(description="How many were deleted.", examples=[2])
    rewrites_summary: bool = Field(
        description="Whether the summary had taken them up, and is written again without them by a job."
    )
