"""A scripted endpoint on a real socket, with a tokenizer like a real one, behind the product's own wiring."""

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memserver.messages import PromptMessage, ToolSpec
from memserver.settings import Settings
from memserver.testing.scripted import Call, Rule, ScriptedModel, say
from memserver.testing.scripted_server import Abilities, create_scripted_app
from memserver.wiring.providers import Models
from tests.support.http_app import serving as serving_app
from tests.support.server import OneDatabase, Server, serving

_PIECE = re.compile(r" ?[A-Za-z]+| ?[0-9]{1,3}|\s+|[!-/:-@\[-`{-~]+|.", re.DOTALL)

_MODEL = re.compile(rb'"model": ?"([^"]*)"')

_LIMIT = re.compile(rb'"max_tokens": ?([0-9]+)')


def count_as_bpe(text: str) -> int:
    """About what a byte-level BPE of English makes of a text: an emoji has three tokens, a Hanzi one or two."""
    return sum(_tokens(piece) for piece in _PIECE.findall(text))


def _tokens(piece: str) -> int:
    if piece.isascii():
        return -(-len(piece) // 8)
    return 3 if len(piece.encode()) == 4 else 1 + (ord(piece) % 3 == 0)


def listen(_prompt: Sequence[PromptMessage], _tools: Sequence[ToolSpec]) -> Call:
    return say("I see. Please go on, I would like to hear more.", thought="I listen.")


@dataclass
class Endpoint:
    """What was answered; `refused` counts the prompts that were too long."""

    url: str = ""
    tokenize: ASGIApp | None = None
    """Answers /tokenize instead of the endpoint."""
    asked: list[str] = field(default_factory=list)
    """The models that completions were asked of."""
    limits: list[int] = field(default_factory=list)
    """Tokens that completions might have."""
    statuses: list[tuple[str, int]] = field(default_factory=list)

    @property
    def refused(self) -> int:
        return self.statuses.count(("/v1/chat/completions", 400))


@contextmanager
def endpoint(
    rule: Rule = listen, *, abilities: Abilities | None = None, **options: Any
) -> Iterator[Endpoint]:
    seen = Endpoint()
    able = abilities or Abilities(tokenize=False)
    app = create_scripted_app(rule, abilities=able, **{"count": count_as_bpe, **options})
    with serving_app(_noting(app, seen)) as url:
        seen.url = f"{url}/v1"
        yield seen


@asynccontextmanager
async def serving_over_http(
    database: OneDatabase, url: str, **settings: Any
) -> AsyncIterator[Server]:
    """The whole server with the models of the settings, as `memserver serve` has them."""
    models = Models(Settings(_env_file=None, llm_base_url=url, **settings))
    try:
        async with serving(database, ScriptedModel(), models=models, **settings) as server:
            yield server
    finally:
        await models.aclose()


def _noting(app: ASGIApp, seen: Endpoint) -> ASGIApp:
    async def noted(scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                seen.statuses.append((scope["path"], message["status"]))
            await send(message)

        async def received() -> Message:
            message = await receive()
            found = _MODEL.search(message.get("body", b""))
            if found and scope["path"].endswith("/completions"):
                seen.asked.append(found[1].decode())
            limit = _LIMIT.search(message.get("body", b""))
            if limit:
                seen.limits.append(int(limit[1]))
            return message

        other = seen.tokenize if scope["path"] == "/tokenize" else None
        await (other or app)(scope, received, sent)

    return noted


def load(model: Endpoint, name: str, path: Path) -> None:
    body = {"lora_name": name, "lora_path": str(path)}
    assert httpx2.post(f"{model.url}/load_lora_adapter", json=body).status_code == 200


async def give_model(server: Server, agent: str, name: str | None) -> None:
    changed = await server.http.patch(f"/v1/agents/{agent}", json={"model": name})
    assert (changed.status_code, changed.json()["model"]) == (200, name)
