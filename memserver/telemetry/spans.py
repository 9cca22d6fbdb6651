"""Traces, by OpenTelemetry's conventions for generative AI: a turn is an agent's invocation, with its model's and tools' calls."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from opentelemetry.context import Context, get_current
from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, Tracer

current = get_current
_tracers: list[Tracer] = []
"""One, from `begin` on."""
_NOTHING = nullcontext(INVALID_SPAN)


def begin(tracer: Tracer) -> None:
    """Have this process write traces from now on."""
    _tracers[:] = [tracer]


def span(
    name: str,
    attributes: Mapping[str, str | int],
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    parent: Context | None = None,
) -> AbstractContextManager[Span]:
    """A span around the block; where nobody traces, none, which costs nothing. `parent` is the running one unless given."""
    if not _tracers:
        return _NOTHING
    return _tracers[0].start_as_current_span(
        name, context=parent, kind=kind, attributes=dict(attributes)
    )
