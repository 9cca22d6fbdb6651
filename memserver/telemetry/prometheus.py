"""Metrics as Prometheus reads them.

Several worker processes of one server share the folder that PROMETHEUS_MULTIPROC_DIR names, where prometheus-client keeps their
values: what any of them answers is that of all, also of those that have died.
"""

from collections.abc import Iterable

import prometheus_client
from prometheus_client import values
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry
from typing_extensions import override

from memserver.telemetry.metrics import MEASURES, NO_METRICS, Measure, Recorder

prometheus_client.disable_created_metrics()  # a second series for each, which nobody reads
SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
Gauges = dict[str, tuple[str, dict[tuple[tuple[str, str], ...], float]]]
"""By name: what it is, and its values by their labels."""


class PrometheusMetrics(Recorder):
    def __init__(self, also: Recorder = NO_METRICS) -> None:
        """Measure; `also` gets the same."""
        self._also = also
        self._registry = CollectorRegistry()
        self._histograms = {measure.name: self._histogram(measure) for measure in MEASURES}
        self._running = self._gauge("memserver_turns_running", "Turns that run now.")
        self._waiting = self._gauge(
            "memserver_turns_waiting", "Turns that wait for a place at the model."
        )

    @override
    def record(self, measure: Measure, value: float, *labels: str) -> None:
        self._histograms[measure.name].labels(*labels).observe(value)
        self._also.record(measure, value, *labels)

    @override
    def add_running(self, turns: int) -> None:
        self._running.inc(turns)
        self._also.add_running(turns)

    @override
    def add_waiting(self, turns: int) -> None:
        self._waiting.inc(turns)
        self._also.add_waiting(turns)

    @override
    def close(self) -> None:
        self._also.close()

    def render(self, accept: str, gauges: Gauges) -> tuple[bytes, str]:
        """All that was measured, with values of this moment, in the form that a header Accept wants; and its media type."""
        encode, media_type = choose_encoder(accept)
        return encode(_Read(self._registry, gauges)), media_type

    def _gauge(self, name: str, description: str) -> prometheus_client.Gauge:
        return prometheus_client.Gauge(
            name, description, registry=self._registry, multiprocess_mode="livesum"
        )

    def _histogram(self, measure: Measure) -> prometheus_client.Histogram:
        seconds = "_seconds" if measure.unit == "s" else ""
        return prometheus_client.Histogram(
            measure.name.replace(".", "_") + seconds,
            measure.description,
            [label.replace(".", "_") for label in measure.labels],
            buckets=measure.buckets,
            registry=self._registry,
        )


class _Read(Collector):
    def __init__(self, own: CollectorRegistry, gauges: Gauges) -> None:
        self._own = own
        self._gauges = gauges

    @override
    def collect(self) -> Iterable[Metric]:
        is_alone = values.ValueClass is values.MutexValue
        yield from (self._own if is_alone else MultiProcessCollector(None)).collect()
        for name, (description, found) in self._gauges.items():
            labels = [label for label, _ in next(iter(found), ())]
            family = GaugeMetricFamily(name, description, labels=labels)
            for each, value in found.items():
                family.add_metric([text for _, text in each], value)
            yield family
