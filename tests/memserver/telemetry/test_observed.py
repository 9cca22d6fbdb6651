"""What is said of a model's calls that fail."""

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from typing_extensions import override

from memserver.errors import ModelUnavailable
from memserver.llm.observed import ObservedModel
from memserver.messages import PromptMessage
from memserver.telemetry import spans
from memserver.telemetry.metrics import MODEL, Measure, Recorder
from memserver.testing.scripted import ScriptedModel

PROMPT = [PromptMessage("user", "hello")]


class Recorded(Recorder):
    def __init__(self) -> None:
        self.labels: list[tuple[str, ...]] = []

    @override
    def record(self, measure: Measure, value: float, *labels: str) -> None:
        if measure is MODEL:
            self.labels.append(labels)


@pytest.fixture
def exported() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    spans.begin(provider.get_tracer("test"))
    yield exporter
    spans.end()


async def test_a_failure_is_counted_and_traced_by_its_code_without_its_words_or_an_unknown_name(
    exported: InMemorySpanExporter,
) -> None:
    recorded, refusal = Recorded(), ModelUnavailable("It quotes a secret.")
    outcomes = iter([refusal, "They talked.", refusal])
    model = ObservedModel(ScriptedModel(summary=lambda _: next(outcomes)), recorded, set())
    with pytest.raises(ModelUnavailable):
        await model.write(PROMPT, max_tokens=10)
    await model.write(PROMPT, max_tokens=10)
    with pytest.raises(ModelUnavailable):
        await model.write(PROMPT, max_tokens=10)
    assert [(name, error) for _, _, name, error in recorded.labels] == [
        ("", "model_unavailable"),
        ("scripted", ""),
        ("scripted", "model_unavailable"),
    ]
    failed, worked, _ = exported.get_finished_spans()
    assert (failed.attributes or {})["error.type"] == "model_unavailable"
    assert worked.name == "chat scripted"
    assert "secret" not in failed.to_json()
