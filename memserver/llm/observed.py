"""A model whose requests are measured."""

from collections.abc import Awaitable, Callable
from time import perf_counter

from opentelemetry.trace import Span, SpanKind
from typing_extensions import override

from memserver.errors import ModelError
from memserver.llm.base import Answer, ChatModel, ModelDecorator, TextSink
from memserver.messages import TokenUsage
from memserver.telemetry.metrics import FIRST_TEXT, MODEL, MODEL_TOKENS, Recorder
from memserver.telemetry.spans import span

CHAT, PROVIDER = "chat", "openai"
"""By OpenTelemetry's conventions: the operation, and whose API the endpoint speaks."""


class ObservedModel(ModelDecorator):
    """Records how long requests take, and their tokens, also of those that failed but cost some."""

    def __init__(self, inner: ChatModel, recorder: Recorder, known: set[str]) -> None:
        """Observe it; `known` are names that have worked: a label has no others, which agents may be given at will."""
        super().__init__(inner)
        self._recorder = recorder
        self._known = known

    @override
    async def around(
        self, ask: Callable[[TextSink | None], Awaitable[Answer]], on_text: TextSink | None
    ) -> Answer:
        start, first = perf_counter(), 0.0
        name = self.inner.name
        record = self._recorder.record

        def hear(text: str) -> None:
            nonlocal first
            if not first:
                first = perf_counter()
                known = name if name in self._known else ""
                record(FIRST_TEXT, first - start, CHAT, PROVIDER, known)
            assert on_text is not None
            on_text(text)

        failure, usage = "", TokenUsage()
        asked = {"gen_ai.operation.name": CHAT, "gen_ai.provider.name": PROVIDER}
        try:
            with span(CHAT, asked, kind=SpanKind.CLIENT) as traced:
                answer = await ask(None if on_text is None else hear)
                name, usage = self.inner.name, answer.usage
                self._known.add(name)
                if traced.is_recording():
                    _describe(traced, name, usage)
        except ModelError as error:
            failure, usage = error.code, getattr(error, "usage", usage)
            name = name if name in self._known else ""
            raise
        else:
            return answer
        finally:
            record(MODEL, perf_counter() - start, CHAT, PROVIDER, name, failure)
            for kind, tokens in (
                ("input", usage.prompt_tokens),
                ("output", usage.completion_tokens),
            ):
                if tokens:
                    record(MODEL_TOKENS, tokens, CHAT, PROVIDER, name, kind)


def _describe(traced: Span, model: str, usage: TokenUsage) -> None:
    traced.update_name(f"{CHAT} {model}")
    traced.set_attributes(
        {
            "gen_ai.request.model": model,
            "gen_ai.usage.input_tokens": usage.prompt_tokens,
            "gen_ai.usage.output_tokens": usage.completion_tokens,
        }
    )
