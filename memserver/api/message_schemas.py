"""Messages, turns and recall storage as the API's models."""

from dataclasses import asdict
from datetime import datetime
from typing import Any, Literal, Self

from pydantic import (
    AwareDatetime,
    BaseModel,
    Field,
)

from memserver.agent.events import TurnEnded, TurnPaused
from memserver.api.schemas import ErrorBody, LongText, Request
from memserver.memory.recall import RecallPage
from memserver.memory.recall_meaning import MeaningPage
from memserver.messages import Message, Usage, WaitsFor
from memserver.storage.inbox import Turn


class MessageIn(Request):
    """Something a person says to the agent."""

    text: LongText = Field(description="What they say.", examples=["Hi, I am Ada."])
    stream: bool = Field(default=False, description="Answer as server-sent events.")
    at: AwareDatetime | None = Field(
        default=None,
        description="When they say it, with a zone; only to an agent whose option clock is "
        '"messages". It is the time while the agent answers. Left out: now.',
    )


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
