"""How the server does, for its operator: its load, its models' endpoints, and reports of evaluations and trainings."""

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from memserver.wire.base import Record


class Minute(Record):
    """What one minute brought; times of turns in seconds, null where none ended."""

    at: datetime = Field(description="When it began.")
    turns: int = Field(description="That ended.", examples=[42])
    steps: int = Field(examples=[57])
    errors: int = Field(description="Turns that failed.", examples=[0])
    p50: float | None = Field(examples=[0.9])
    p95: float | None = Field(examples=[2.1])
    prompt_tokens: int = Field(examples=[63840])
    completion_tokens: int = Field(examples=[1720])
    cached_tokens: int = Field(examples=[59136])


class TurnSeconds(Record):
    """How long turns took, from their message to their end, to one percent; null: none ended."""

    p50: float | None = Field(examples=[0.9])
    p95: float | None = Field(examples=[2.1])
    p99: float | None = Field(examples=[3.4])
    max: float | None = Field(examples=[4.2])


class StepSeconds(Record):
    """Where the time of a step goes in the mean, in seconds; null: there were none."""

    memory: float | None = Field(examples=[0.002])
    queue: float | None = Field(examples=[0.0])
    model: float | None = Field(examples=[0.84])
    tools: float | None = Field(examples=[0.01])
    database: float | None = Field(examples=[0.004])
    other: float | None = Field(examples=[0.001])


class OpenTurns(Record):
    """Turns that have not ended, apart from those that wait for somebody's answer."""

    waiting: int = Field(examples=[0])
    running: int = Field(examples=[3])
    waiting_since: datetime | None = Field(
        description="Since when the one waits that has waited longest.", examples=[None]
    )


class JobCount(Record):
    """Jobs of one kind in one state. Those that succeeded are not kept."""

    name: str = Field(examples=["compact"])
    state: str = Field(description="todo, doing or failed.", examples=["todo"])
    jobs: int = Field(examples=[1])


class Operations(Record):
    """How the server does: the last minutes, and what stands in line; all tenants and processes together."""

    at: datetime
    minutes: list[Minute] = Field(description="The oldest first; the last one is not over.")
    turn_seconds: TurnSeconds
    step_seconds: StepSeconds
    errors: dict[str, int] = Field(
        description="Turns that failed, by the code of the error.", examples=[{"model_timeout": 1}]
    )
    turns: OpenTurns
    calls_waiting: int = Field(
        description="Calls that wait for an approval or a result.", examples=[0]
    )
    jobs: list[JobCount]
    database_bytes: int = Field(examples=[84_000_000])


class ServedModel(Record):
    """A model or a LoRA adapter that an endpoint lists."""

    name: str = Field(examples=["sam-3f9a1c22"])
    kind: Literal["model", "adapter"] = Field(examples=["adapter"])
    base: str | None = Field(description="Of an adapter: the model below it.", examples=["llama"])
    window: int | None = Field(description="In tokens, if it says so.", examples=[8192])


class KnownModel(Record):
    """A model that this process has asked, and what was found out about how it wants to be asked."""

    name: str = Field(examples=["llama"])
    mode: str = Field(
        description="tools, json_schema or text; auto: not known yet.", examples=["tools"]
    )
    window: int | None = Field(examples=[8192])
    counts_exactly: bool = Field(description="Whether tokens are counted, and not estimated.")
    profile: dict[str, str | bool | None] = Field(
        description="What it takes otherwise than vLLM does.", examples=[{}]
    )
    changes: list[str] = Field(description="What refusals showed, in words.", examples=[[]])


class ModelEndpoint(Record):
    """The endpoint of the models, as this process sees it."""

    address: str = Field(examples=["http://127.0.0.1:8000/v1"])
    state: Literal["ok", "loading", "failing", "not_asked"] = Field(
        description="failing: it didn't answer now; not_asked: it failed so often that it is left alone for a while."
    )
    detail: str = Field(description="Why, and when it is tried again.", examples=[""])
    in_flight: int = Field(description="Requests that it works on.", examples=[2])
    waiting: int = Field(description="Requests that wait for a place.", examples=[0])
    at_most: int = Field(description="Requests that it gets at once.", examples=[128])
    served: list[ServedModel]
    known: list[KnownModel]
    embedder: str = Field(examples=["all-MiniLM-L6-v2, 384 dimensions"])


class Report(Record):
    """A run in the results folder."""

    name: str = Field(description="Its path in the folder.", examples=["locomo/monday"])
    kind: Literal["evaluation", "training"]
    title: str = Field(examples=["locomo"])
    updated_at: datetime = Field(description="When its manifest or metrics were written last.")
    finished: bool


class ReportContent(Report):
    """A run's report.

    `content` is its results.json or figures.json; `settings` its manifest.json or training.json.
    """

    settings: dict[str, Any] = Field(examples=[{"task": "locomo", "seed": 0}])
    content: dict[str, Any] = Field(examples=[{"systems": {}}])
    curves: dict[str, list[tuple[float, float]]] = Field(
        description="Of a training: each value that was logged, by its step; at most some hundred points.",
        examples=[{"loss": [[1, 1.81], [2, 1.42]]}],
    )
