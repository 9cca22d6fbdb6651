"""Messages, turns and recall storage as the API's models."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from memserver.agent.events import End, TurnQueued
from memserver.agent.transcript import BETWEEN
from memserver.api.schemas.agents import ErrorBody, LongText, Moment, Request
from memserver.api.schemas.tools import WaitingCallOut
from memserver.llm.base import ChatModel
from memserver.memory.recall import FoundBy, RecallHit, RecallPage
from memserver.memory.results import Excerpt, message_label
from memserver.messages import Message, Usage, WaitsFor
from memserver.storage.inbox import Turn


class MessageIn(Request):
    """Something a person says to the agent."""

    text: LongText = Field(description="What they say.", examples=["Hi, I am Ada."])
    stream: bool = Field(default=False, description="Answer as server-sent events.")
    created_at: Moment | None = Field(
        default=None,
        description="When they say it, with a zone; only to an agent whose option clock is "
        '"messages". It is the time while the agent answers. Left out: now.',
    )


class EventIn(Request):
    """Something that happened, without anybody's saying it to the agent."""

    type: Literal["login", "upload", "custom"] = Field(
        description="login: the person is there; upload: a file has come; custom: what `text` says."
    )
    text: LongText | None = Field(
        default=None, description="More of it; custom needs one.", examples=["rules.pdf"]
    )
    stream: bool = Field(default=False, description="Answer as server-sent events.")

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"type": "upload", "text": "rules.pdf"}]}
    )

    @model_validator(mode="after")
    def _told(self) -> Self:
        if self.type == "custom" and not (self.text or "").strip():
            raise ValueError("an event of type custom needs a text that says what happened")
        return self


class ToolCallOut(BaseModel):
    """A call that the agent made, and what came of it."""

    id: str = Field(examples=["k3Xv90TqZ"])
    name: str = Field(examples=["send_message"])
    arguments: dict[str, Any] = Field(examples=[{"message": "Hello Ada!"}])
    state: Literal["pending", "running", "waiting", "done", "failed", "interrupted"] = Field(
        examples=["done"]
    )
    waits_for: WaitsFor | None = Field(
        description="Of a call that waits or has waited: for approval, or for the caller's result.",
        examples=[None],
    )
    result: str | None = Field(examples=["Sent."])
    finished_at: datetime | None


class MessageOut(BaseModel):
    """One entry of the history. `position` identifies it within its agent and orders the history."""

    position: int = Field(examples=[1001])
    role: Literal["user", "assistant", "system"] = Field(examples=["assistant"])
    text: str = Field(examples=["Hello Ada!"])
    thought: str = Field(examples=["She tells me her name."])
    tool_call: ToolCallOut | None
    tokens: int = Field(examples=[23])
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
    next: int | None = Field(examples=[None])


class UsageOut(BaseModel):
    """Tokens of a turn's model calls, as the endpoint counted them."""

    prompt_tokens: int = Field(examples=[1520])
    completion_tokens: int = Field(examples=[41])
    cached_tokens: int = Field(examples=[1408])

    @classmethod
    def read(cls, usage: Usage) -> Self:
        """From a turn's usage."""
        return cls(
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            cached_tokens=usage.cached_tokens,
        )


Behind = Annotated[
    WaitingCallOut | None,
    Field(
        description="The call of an earlier turn that waits for an answer, if this one waits for that."
    ),
]


def behind_of(end: End | None) -> WaitingCallOut | None:
    """What a turn waits behind, if it does."""
    return (
        WaitingCallOut.read(end.blocked_by, end.expires_at) if isinstance(end, TurnQueued) else None
    )


class TurnOut(BaseModel):
    """A turn: one message (or one import) and what became of it."""

    turn: int = Field(examples=[1])
    kind: Literal["message", "import"]
    state: Literal["waiting", "running", "requires_action", "done", "failed"] = Field(
        examples=["done"]
    )
    steps: int = Field(examples=[1])
    stop_reason: str | None = Field(
        description="message_sent, terminal_tool, no_heartbeat, max_steps, cancelled, imported or error; "
        "null before the end.",
        examples=["message_sent"],
    )
    error: ErrorBody | None = Field(examples=[None])
    usage: UsageOut
    created_at: datetime
    finished_at: datetime | None
    behind: Behind = None

    @classmethod
    def read(cls, turn: Turn, queued: TurnQueued | None = None) -> Self:
        """From a stored turn."""
        return cls(
            turn=turn.turn,
            kind=turn.kind,
            state=turn.state,
            steps=turn.steps,
            stop_reason=turn.stop_reason if turn.ended else None,
            error=ErrorBody(**turn.error) if turn.error else None,
            usage=UsageOut.read(turn.usage),
            created_at=turn.created_at,
            finished_at=turn.finished_at,
            behind=behind_of(queued),
        )


class Answer(BaseModel):
    """What came of a message: the agent's text, and every step behind it."""

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
    usage: UsageOut
    messages: list[MessageOut]
    behind: Behind = None

    @classmethod
    def of(cls, ended: End, messages: list[Message]) -> Self:
        """From a turn that has ended, or waits."""
        said = [
            message.text for message in messages if message.role == "assistant" and message.text
        ]
        return cls(
            turn=ended.turn,
            text=BETWEEN.join(said),
            stop_reason=ended.stop_reason,
            steps=ended.steps,
            usage=UsageOut.read(ended.usage),
            messages=[MessageOut.read(message) for message in messages],
            behind=behind_of(ended),
        )


class PastMessage(Request):
    """A message from before, with its own time."""

    role: Literal["user", "assistant"]
    text: LongText = Field(examples=["I moved to Graz."])
    created_at: Moment | None = Field(default=None, description="With a zone; left out: now.")


class ImportIn(Request):
    """Past messages, oldest first."""

    messages: Annotated[list[PastMessage], Field(fail_fast=True)] = Field(
        min_length=1, max_length=10_000
    )


class FoundMessage(MessageOut):
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

    @classmethod
    def of(cls, hit: RecallHit, excerpt: Excerpt) -> Self:
        """From what a search found."""
        return cls(
            **dict(MessageOut.read(hit.message)),
            found_by=list(hit.found_by),
            score=hit.score,
            label=message_label(hit.message.position),
            excerpt=excerpt.text,
        )


class CoverageOut(BaseModel):
    """How much of an agent's history can be found by meaning."""

    embedded: int = Field(description="Messages that have been embedded.", examples=[240])
    messages: int = Field(description="Messages that there are.", examples=[242])
    complete: bool = Field(description="Whether all of turns that have ended are embedded.")


class RecallResults(BaseModel):
    """One page of a recall search. Behind a cursor nothing is counted: total and pages are null."""

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
    coverage: CoverageOut | None = Field(default=None, description="Where meaning was looked for.")

    @classmethod
    def of(cls, found: RecallPage, items: list[FoundMessage]) -> Self:
        """From a page that was found."""
        return cls(
            items=items,
            total=found.total,
            total_is_exact=found.exact,
            page=found.page.number,
            pages=found.page.pages(found.total),
            next=found.next,
            coverage=CoverageOut(**asdict(found.coverage)) if found.coverage else None,
        )


class ContextPart(BaseModel):
    """One part of the prompt."""

    name: str = Field(examples=["working_context"])
    tokens: int = Field(examples=[58])
    text: str = Field(examples=["<human>Name: Ada</human>"])


class ContextModel(BaseModel):
    """The model that sees the prompt, and how its endpoint is asked."""

    name: str = Field(examples=["gpt-5"])
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

    @classmethod
    def of(cls, model: ChatModel) -> Self:
        """From a model."""
        report = model.profile
        return cls(
            name=model.name,
            window_is_assumed=model.window_is_assumed,
            mode=model.mode,
            profile=report.unusual() if report else {},
            changes=[str(change) for change in report.changes] if report else [],
        )


class ContextOut(BaseModel):
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
    queue: list[MessageOut]
    summary_failure: str | None = Field(
        description="Why the newest summary is an extract and not the model's, if so.",
        examples=[None],
    )
    model: ContextModel
