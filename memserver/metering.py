"""Where the time of a turn's step goes, and what it exchanged with the model: measured in every layer, stored with the step."""

from contextvars import ContextVar
from dataclasses import dataclass, field
from time import perf_counter
from typing import Literal

from memserver.messages import TokenUsage

Phase = Literal["memory", "queue", "model", "tools", "database", "other"]
"""memory: the prompt is put together, and room made in it; queue: other requests to the model are waited for."""


@dataclass(slots=True)
class StepMeter:
    """What was measured since the step before it was stored.

    Attributes:
        seconds: by phase; together they are all the time that went by.
        parts: the prompt's tokens by part; empty before the model was asked.
        request: the last request, the very bytes if it was sent over HTTP; only a reference is kept.
        reply: what was read of its answer.
    """

    seconds: dict[Phase, float] = field(default_factory=dict)
    usage: TokenUsage = field(default_factory=TokenUsage)
    parts: dict[str, int] = field(default_factory=dict)
    request: object = None
    reply: object = None
    _phase: Phase = "other"
    _since: float = field(default_factory=perf_counter)

    def switch(self, phase: Phase) -> Phase:
        """Count the time from now on to this phase; returns the one before."""
        now, before = perf_counter(), self._phase
        self.seconds[before] = self.seconds.get(before, 0.0) + now - self._since
        self._phase, self._since = phase, now
        return before

    def take(self) -> "StepMeter":
        """What was measured up to now, and begin again."""
        self.switch(self._phase)
        taken = StepMeter(self.seconds, self.usage, self.parts, self.request, self.reply)
        self.seconds, self.usage, self.parts = {}, TokenUsage(), {}
        self.request = self.reply = None
        return taken


meter: ContextVar[StepMeter | None] = ContextVar("meter", default=None)
"""That of the turn which this task runs."""


class timed:  # noqa: N801 - used as a statement
    """The block's time is of this phase, apart from what blocks inside of it take for theirs."""

    __slots__ = ("_before", "_meter", "_phase")

    def __init__(self, phase: Phase) -> None:
        self._phase = phase
        self._meter = meter.get()

    def __enter__(self) -> None:
        if self._meter is not None:
            self._before = self._meter.switch(self._phase)

    def __exit__(self, *_: object) -> None:
        if self._meter is not None:
            self._meter.switch(self._before)


def note_request(request: object) -> None:
    if (current := meter.get()) is not None:
        current.request, current.reply = request, None


def note_reply(reply: object) -> None:
    if (current := meter.get()) is not None:
        current.reply = reply
