"""Traces and metrics for a collector, by OTLP over HTTP; the extra `otel` brings what this needs.

The settings name the address. All else is set by the variables of OpenTelemetry itself: OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER,
OTEL_EXPORTER_OTLP_HEADERS and so on.
"""

from urllib.parse import parse_qsl, urlencode

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from typing_extensions import override

import memserver
from memserver.telemetry import spans
from memserver.telemetry.metrics import MEASURES, Measure, Recorder

NAME = "memserver"
SECONDS = 3
"""For what a collector gets at once, with retries: one that is away holds up the end of a process by that, twice."""


class _QueryNames(SpanProcessor):
    """Leaves of a request's query the names: what is searched for is a text of the user's."""

    @override
    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        query = str((span.attributes or {}).get("url.query", ""))
        names = [(name, "REDACTED") for name, _ in parse_qsl(query, keep_blank_values=True)]
        if names:
            span.set_attribute("url.query", urlencode(names))


class OtlpExport(Recorder):
    """Sends what this process measures, and from its making on the traces of this process."""

    def __init__(self, endpoint: str) -> None:
        resource = Resource.create({"service.name": NAME, "service.version": memserver.__version__})
        base = endpoint.rstrip("/")
        self._traces = TracerProvider(resource=resource)
        self._traces.add_span_processor(_QueryNames())
        self._traces.add_span_processor(
            BatchSpanProcessor(OTLPSpanExporter(f"{base}/v1/traces", timeout=SECONDS))
        )
        trace.set_tracer_provider(self._traces)  # FastAPI's own spans of requests go there
        spans.begin(self._traces.get_tracer(NAME))
        reader = PeriodicExportingMetricReader(
            OTLPMetricExporter(f"{base}/v1/metrics", timeout=SECONDS)
        )
        self._metrics = MeterProvider([reader], resource)
        meter = self._metrics.get_meter(NAME)
        self._histograms = {
            each.name: meter.create_histogram(
                each.name,
                each.unit,
                each.description,
                explicit_bucket_boundaries_advisory=each.buckets,
            )
            for each in MEASURES
        }
        self._running = meter.create_up_down_counter("memserver.turns.running", "{turn}")
        self._waiting = meter.create_up_down_counter("memserver.turns.waiting", "{turn}")

    @override
    def record(self, measure: Measure, value: float, *labels: str) -> None:
        found = {name: text for name, text in zip(measure.labels, labels, strict=True) if text}
        self._histograms[measure.name].record(value, found)

    @override
    def add_running(self, turns: int) -> None:
        self._running.add(turns)

    @override
    def add_waiting(self, turns: int) -> None:
        self._waiting.add(turns)

    @override
    def close(self) -> None:
        self._traces.shutdown()
        self._metrics.shutdown()
