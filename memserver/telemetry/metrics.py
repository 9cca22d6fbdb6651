"""What is measured, under the names of OpenTelemetry's semantic conventions where they have one."""

from collections.abc import Sequence
from dataclasses import dataclass

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576)


@dataclass(frozen=True, slots=True)
class Measure:
    """A distribution; the labels are attributes in OpenTelemetry."""

    name: str
    description: str
    labels: tuple[str, ...]
    unit: str = "s"
    buckets: Sequence[float] = SECONDS


_MODEL = ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model")
REQUEST = Measure(
    "http.server.request.duration",
    "Requests to memserver.",
    ("http.request.method", "http.route", "http.response.status_code"),
)
TURN = Measure(
    "memserver.turn.duration",
    "Turns, from when they are taken up until they end or wait for an answer.",
    ("memserver.stop_reason",),
)
TOOL = Measure(
    "memserver.tool.duration", "Calls of tools.", ("memserver.tool.kind", "memserver.outcome")
)
JOB = Measure("memserver.job.duration", "Jobs.", ("memserver.job.name", "memserver.outcome"))
REPLICA = Measure(
    "memserver.replica.duration",
    "Reads at the replica; not done: why the primary ran them, and how long that was tried.",
    ("memserver.outcome",),
)
MODEL = Measure(
    "gen_ai.client.operation.duration",
    "Requests to a model, with their retries.",
    (*_MODEL, "error.type"),
)
ENGINE = Measure(
    "memserver.engine.duration",
    "Requests to one of several engines.",
    ("server.address", "error.type"),
)
FIRST_TEXT = Measure(
    "gen_ai.client.operation.time_to_first_chunk", "Time to the first text of a stream.", _MODEL
)
MODEL_TOKENS = Measure(
    "gen_ai.client.token.usage",
    "Tokens of requests to a model, as its endpoint counts them.",
    (*_MODEL, "gen_ai.token.type"),
    "{token}",
    TOKENS,
)
MEASURES = (REQUEST, TURN, TOOL, JOB, REPLICA, MODEL, ENGINE, FIRST_TEXT, MODEL_TOKENS)


class Recorder:
    """Where measurements go; this one leaves them out."""

    def record(self, measure: Measure, value: float, *labels: str) -> None:
        """Note a value; the labels are in the order of the measure's."""

    def add_running(self, turns: int) -> None:
        """Note that so many more turns run now."""

    def add_waiting(self, turns: int) -> None:
        """Note that so many more turns wait for a place at the model."""

    def close(self) -> None:
        """Send what has not been sent; it may take seconds."""


NO_METRICS = Recorder()
