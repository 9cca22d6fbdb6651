"""Keeps each prompt of an agent and the answer to it, by a decorator of the models that a memserver works with.

An agent is made with a model whose name begins with a key: the decorator knows by it whose prompts it sees, and
asks for the model that is named after it. What else is asked for in the same task of asyncio, such as
a summary by another model, belongs to the same agent. Players may be in other processes, so they take what was
kept over HTTP, from the memserver itself.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field

import httpx2
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from typing_extensions import override

from memserver.agent.dependencies import ModelSource
from memserver.errors import ModelUnavailable, ProtocolViolation
from memserver.llm.base import ChatModel, ModelDecorator, Reply, TextSink, Written
from memserver.llm.wire import call_as_json
from memserver.messages import PromptMessage, TokenUsage, ToolSpec
from memserver_evals.systems.speaking import exchange
from memserver_evals.task import Exchange

TIMEOUT = 600
_EXCHANGES = TypeAdapter(tuple[Exchange, ...])
_PREFIX = "recorded:"
_current_key: ContextVar[str] = ContextVar("current_key", default="")


class RecordingModel(ModelDecorator):
    """A model whose prompts and answers are added to `exchanges`."""

    def __init__(self, inner: ChatModel, exchanges: list[Exchange]) -> None:
        super().__init__(inner)
        self.exchanges = exchanges

    @override
    async def call_tool(
        self,
        prompt: Sequence[PromptMessage],
        tools: Sequence[ToolSpec],
        *,
        max_tokens: int,
        on_text: TextSink | None = None,
    ) -> Reply:
        with self._keeping_violations(prompt, "answer"):
            reply = await self.inner.call_tool(
                prompt, tools, max_tokens=max_tokens, on_text=on_text
            )
        self._keep(prompt, call_as_json(reply.call), reply.usage, "answer")
        return reply

    @override
    async def write(
        self, prompt: Sequence[PromptMessage], *, max_tokens: int, on_text: TextSink | None = None
    ) -> Written:
        with self._keeping_violations(prompt, "summary"):
            written = await self.inner.write(prompt, max_tokens=max_tokens, on_text=on_text)
        self._keep(prompt, written.text, written.usage, "summary")
        return written

    @contextmanager
    def _keeping_violations(self, prompt: Sequence[PromptMessage], purpose: str) -> Iterator[None]:
        try:
            yield
        except ProtocolViolation as violation:
            self._keep(prompt, violation.raw, violation.usage, purpose)
            raise

    def _keep(
        self, prompt: Sequence[PromptMessage], text: str, usage: TokenUsage | None, purpose: str
    ) -> None:
        answer = {"role": "assistant", "content": text}
        self.exchanges.append(exchange(prompt, answer, usage or TokenUsage(), purpose))


@dataclass(frozen=True, slots=True)
class RecordingModels(ModelSource):
    """The models of a memserver, recorded where an agent's model is named by `Recorder.model_name`."""

    inner: ModelSource
    kept: "defaultdict[str, list[Exchange]]" = field(default_factory=lambda: defaultdict(list))

    @override
    def get(self, name: str | None, tenant: str = "") -> ChatModel:
        if name is not None and name.startswith(_PREFIX):
            key, _, name = name.removeprefix(_PREFIX).partition(":")
            _current_key.set(key)
        model = self.inner.get(name or None, tenant)
        key = _current_key.get()
        return RecordingModel(model, self.kept[key]) if key else model

    @override
    async def wait_until_ready(self) -> None:
        await self.inner.wait_until_ready()

    @override
    def loading(self) -> str:
        return self.inner.loading()

    def route(self) -> Route:
        """Where a `Recorder` takes what was kept."""

        async def take(request: Request) -> Response:
            exchanges = self.kept[request.path_params["key"]]
            taken = [asdict(each) for each in exchanges]
            exchanges.clear()  # the same list: the agent's model adds to it
            return JSONResponse(taken)

        return Route("/exchanges/{key}", take, methods=["DELETE"])


@dataclass(frozen=True, slots=True)
class Recorder:
    """Takes what a memserver at this address has kept; without an address its prompts are not known."""

    url: str = ""

    def model_name(self, key: str, model: str | None) -> str | None:
        """The model of an agent whose prompts are kept under the key; None is the server's own."""
        return f"{_PREFIX}{key}:{model or ''}" if self.url else model

    async def take(self, key: str) -> tuple[Exchange, ...]:
        """What was kept under the key since it was last asked for. Raises ModelUnavailable."""
        if not self.url:
            return ()
        answer = await ask_part(self.url, "DELETE", f"/exchanges/{key}")
        return _EXCHANGES.validate_python(answer.json())


async def ask_part(url: str, method: str, path: str, body: object = None) -> httpx2.Response:
    """The answer of a part of the evaluation.

    Raises ModelUnavailable: there was none, or it was an error. The example has to be played again, since what
    was asked for may be lost with the answer.
    """
    try:
        async with httpx2.AsyncClient(timeout=TIMEOUT, trust_env=False) as http:
            answer = await http.request(method, f"{url}{path}", json=body)
            answer.raise_for_status()
    except httpx2.HTTPError as error:
        raise ModelUnavailable(
            f"A part of the evaluation at {url} doesn't answer: {error}"
        ) from error
    return answer
