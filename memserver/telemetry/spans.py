"""Traces, by OpenTelemetry's conventions for generative AI: a turn is an agent's invocation, with its model's and tools' calls."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from opentelemetry.context import Context, get_current
from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, StatusCode, Tracer

current = get_current
_tracers: list[Tracer] = []
"""One, from `begin` on."""
_NOTHING = nullcontext(INVALID_SPAN)


def begin(tracer: Tracer) -> None:
    """Have this process write traces from now on."""
    _tracers[:] = [tracer]


def end() -> None:
    """Have it write none any more."""
    _tracers.clear()


def span(
    name: str,
    attributes: Mapping[str, str | int],
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    parent: Context | None = None,
) -> AbstractContextManager[Span]:
    """A span around the block; where nobody traces, none, which costs nothing. `parent` is the running one unless given."""
    return _traced(name, attributes, kind, parent) if _tracers else _NOTHING


@contextmanager
def _traced(
    name: str, attributes: Mapping[str, str | int], kind: SpanKind, parent: Context | None
) -> Iterator[Span]:
    """Of a failure the span has the code alone: an error's message may quote what somebody said."""
    with _tracers[0].start_as_current_span(
        name,
        context=parent,
        kind=kind,
        attributes=dict(attributes),
        record_exception=False,
        set_status_on_exception=False,
    ) as made:
        succeeded = False
        try:
            yield made
            succeeded = True
        finally:
            if not succeeded:
                error = sys.exception()
                made.set_attribute("error.type", getattr(error, "code", type(error).__name__))
                made.set_status(StatusCode.ERROR)
