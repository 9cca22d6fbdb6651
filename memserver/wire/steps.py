"""A turn under the lens: what each step sent, got and cost."""

from datetime import datetime
from typing import Any

from pydantic import Field

from memserver.wire.base import Record
from memserver.wire.messages import Usage


class StepTimes(Record):
    """Where the time of a step went, in seconds; together all of it, up to when the step was stored."""

    memory: float = Field(
        description="The prompt was put together, and room made in it.", examples=[0.002]
    )
    queue: float = Field(description="Other requests to the model came first.", examples=[0.0])
    model: float = Field(description="The model replied.", examples=[0.84])
    tools: float = Field(description="The call ran, apart from the database.", examples=[0.0])
    database: float = Field(description="Answers of the database.", examples=[0.004])
    other: float = Field(examples=[0.001])


class TurnStep(Record):
    """One step: a request to the model, and what was done with the reply."""

    step: int = Field(examples=[1])
    at: datetime = Field(description="When it was stored.")
    position: int | None = Field(
        description="Of the message that it added; null: it failed.", examples=[1001]
    )
    model: str = Field(examples=["gpt-5"])
    parts: dict[str, int] = Field(
        description="Tokens of the prompt by part: instructions, working_context, summary, tools, queue.",
        examples=[{"instructions": 420, "tools": 610, "queue": 490}],
    )
    usage: Usage
    seconds: StepTimes
    stop: str | None = Field(
        description="Why the turn ended with it, if it did.", examples=["message_sent"]
    )
    error: str | None = Field(description="The code of the error, if it failed.", examples=[None])
    request: Any = Field(
        description="The request's body, as the model's endpoint was sent it; null where it was not stored: "
        "see the option `trace`. Erased with messages.",
        examples=[{"model": "gpt-5", "messages": [{"role": "system", "content": "You are Sam."}]}],
    )
    reply: Any = Field(
        description="What the endpoint replied, before it was checked: content, calls, reasoning.",
        examples=[{"content": "", "finish_reason": "tool_calls"}],
    )


class TurnSteps(Record):
    """The steps of a turn, and how long it waited before the first one."""

    turn: int = Field(examples=[1])
    waited: float | None = Field(
        description="Seconds from the message until the turn was taken up.", examples=[0.003]
    )
    took: float | None = Field(
        description="Seconds from the message until the turn's end.", examples=[0.86]
    )
    traced: bool = Field(description="Whether prompts of the agent are stored now.")
    steps: list[TurnStep]
