"""A proxy between memserver and its model that keeps each prompt and answer, by the agent they were for.

memserver tells the agent by a header (its setting llm_tell_agent). What it asks for itself, such as the
probe of how a model takes tools, belongs to no example and is passed on without being kept.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import Protocol

import httpx2
from pydantic import TypeAdapter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from typing_extensions import override

from memserver.llm.modes import PROBE
from memserver.llm.tool_schema import TOOLS_HEADING
from memserver.messages import JsonObject
from memserver.openai_http.addresses import Address, read_address
from memserver.openai_http.client import AGENT_HEADER
from memserver_evals.systems.parts import TIMEOUT, ask_part
from memserver_evals.task import Exchange

_EXCHANGES = TypeAdapter(tuple[Exchange, ...])
_NOT_PASSED_ON = {"host", "content-length", "connection", "transfer-encoding", "accept-encoding"}
_NOT_PASSED_BACK = {"content-length", "connection", "transfer-encoding", "content-encoding"}


class Recorder(Protocol):
    """Who has kept what memserver asked its model."""

    async def take(self, agent_id: str) -> tuple[Exchange, ...]:
        """What was kept for this agent since it was last asked for."""
        ...


class NoRecorder(Recorder):
    """For a memserver whose model is asked past us: its prompts are not known."""

    @override
    async def take(self, agent_id: str) -> tuple[Exchange, ...]:
        """Nothing."""
        return ()


@dataclass(frozen=True, slots=True)
class RemoteRecorder(Recorder):
    """The proxy, by its address; it may be in another process."""

    url: str

    @override
    async def take(self, agent_id: str) -> tuple[Exchange, ...]:
        """What was kept for this agent since it was last asked for."""
        answer = await ask_part(self.url, "POST", f"/exchanges/{agent_id}/take")
        return _EXCHANGES.validate_python(answer.json())


@dataclass
class _Proxy:
    base: Address
    pass_agent: bool
    kept: dict[str, list[Exchange]] = field(default_factory=dict)
    http: httpx2.AsyncClient = field(
        default_factory=lambda: httpx2.AsyncClient(timeout=TIMEOUT, limits=_limits())
    )

    async def pass_on(self, request: Request) -> Response:
        body = await request.body()
        path = request.url.path.removeprefix("/v1")
        headers = {
            name: value
            for name, value in request.headers.items()
            if name.lower() not in _NOT_PASSED_ON
            and (self.pass_agent or name.lower() != AGENT_HEADER.lower())
        }
        base = self.base if request.url.path.startswith("/v1") else self.base.beside()
        try:
            answer = await self.http.request(
                request.method, base.of(path), content=body, headers=headers
            )
        except httpx2.TransportError as error:
            told = {"error": {"message": f"The model can't be reached: {error}"}}
            return JSONResponse(told, 503)
        agent = request.headers.get(AGENT_HEADER)
        if agent and answer.status_code == 200 and path == "/chat/completions":
            self._keep(agent, body, answer.content)
        back = {
            name: value
            for name, value in answer.headers.items()
            if name.lower() not in _NOT_PASSED_BACK
        }
        return Response(answer.content, answer.status_code, back)

    async def take(self, request: Request) -> Response:
        kept = self.kept.pop(request.path_params["agent"], [])
        return JSONResponse([asdict(each) for each in kept])

    def _keep(self, agent: str, body: bytes, content: bytes) -> None:
        try:
            asked, answer = json.loads(body), json.loads(content)
        except ValueError:
            return  # a stream, which no evaluation asks for
        if not _is_probe(asked):
            self.kept.setdefault(agent, []).append(_exchange(asked, answer))


def recording_app(base_url: str, *, pass_agent: bool = False) -> Starlette:
    """The proxy as an app.

    Args:
        base_url: the endpoint behind it.
        pass_agent: that endpoint is told the agent too; else it hears nothing of agents.
    """
    proxy = _Proxy(read_address(base_url), pass_agent)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await proxy.http.aclose()

    every = ["GET", "POST", "PUT", "DELETE"]
    return Starlette(
        routes=[
            Route("/exchanges/{agent}/take", proxy.take, methods=["POST"]),
            Route("/{path:path}", proxy.pass_on, methods=every),
        ],
        lifespan=lifespan,
    )


def _exchange(asked: JsonObject, answer: JsonObject) -> Exchange:
    usage = answer.get("usage") or {}
    choices = answer.get("choices") or [{}]
    told = TOOLS_HEADING in str(asked["messages"][0].get("content", ""))
    acting = "tools" in asked or "response_format" in asked or told
    names: dict[str, str] = {}
    messages = [_same_ids(message, names) for message in asked["messages"]]
    return Exchange(
        tuple(messages),
        _same_ids(choices[0].get("message") or {}, names),
        usage.get("prompt_tokens") or 0,
        usage.get("completion_tokens") or 0,
        "answer" if acting else "summary",
    )


def _same_ids(message: JsonObject, names: dict[str, str]) -> JsonObject:
    """A message whose calls' ids, drawn by chance, are numbers: the same run has the same record."""

    def name_of(given: object) -> str:
        return names.setdefault(str(given), f"call_{len(names) + 1}")

    kept = dict(message)
    if kept.get("tool_calls"):
        kept["tool_calls"] = [
            {**call, "id": name_of(call.get("id"))} for call in kept["tool_calls"]
        ]
    if "tool_call_id" in kept:
        kept["tool_call_id"] = name_of(kept["tool_call_id"])
    return kept


def _is_probe(asked: Mapping[str, object]) -> bool:
    tools = asked.get("tools")
    if isinstance(tools, list) and len(tools) == 1:
        return bool(tools[0].get("function", {}).get("name") == PROBE.name)
    return PROBE.name in json.dumps(asked.get("response_format") or asked.get("messages"))


def _limits() -> httpx2.Limits:
    return httpx2.Limits(max_connections=1000, max_keepalive_connections=100)
