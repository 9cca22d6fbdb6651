"""What the settings want to be measured."""

from memserver.errors import SetupError
from memserver.settings import Settings
from memserver.telemetry.metrics import NO_METRICS, Recorder
from memserver.telemetry.prometheus import PrometheusMetrics


def make_recorder(settings: Settings) -> Recorder:
    """Raises SetupError: a collector is named, and the extra that speaks with it is not installed."""
    export = NO_METRICS if settings.otlp_endpoint is None else _export(settings.otlp_endpoint)
    return export if settings.metrics == "off" else PrometheusMetrics(export)


def _export(endpoint: str) -> Recorder:
    try:
        from memserver.telemetry.otlp import OtlpExport  # noqa: PLC0415 - of an extra
    except ImportError as error:
        raise SetupError(
            f"MEMSERVER_OTLP_ENDPOINT needs what is not installed: {error}.",
            hint="pip install 'memserver[otel]'",
        ) from error
    return OtlpExport(endpoint)
