"""All the providers as one app over HTTP: each has its own addresses, rules and memory."""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from memserver.messages import JsonObject
from tests.endpoints.model import reply as model_reply
from tests.endpoints.provider import Asked, Memory, Provider, Refused, Reply, Stream, tokens

KEY = "secret"
_PIECE = 16


@dataclass
class Stub:
    """The app, and what it remembers by provider."""

    providers: dict[str, Provider]
    memories: dict[str, Memory] = field(default_factory=dict)

    @classmethod
    def of(cls, providers: Sequence[Provider]) -> "Stub":
        """A stub of these providers."""
        return cls({provider.slug: provider for provider in providers})

    def begin(self, slug: str) -> Memory:
        """Forget what a provider was asked."""
        self.memories[slug] = Memory()
        return self.memories[slug]

    @property
    def app(self) -> Starlette:
        route = Route("/{slug}/{path:path}", self._serve, methods=["GET", "POST"])
        return Starlette(routes=[route])

    async def _serve(self, request: Request) -> Response:
        provider = self.providers[request.path_params["slug"]]
        memory = self.memories.setdefault(provider.slug, Memory())
        path, _, query = provider.path.partition("?")
        asked_path = f"/{request.path_params['path']}"
        if request.headers.get(provider.key) not in {KEY, f"Bearer {KEY}"}:
            return _refusal(provider, Refused("The API key is missing or wrong.", 401))
        if query and request.url.query != query:
            return _refusal(provider, Refused("Resource not found", 404, "404"))
        if asked_path == f"{path}/models" and provider.listing is not None:
            return JSONResponse(provider.listing(provider.models))
        if request.method == "POST" and asked_path == f"{path}/chat/completions":
            return _complete(provider, Asked(await request.json(), memory))
        if request.method == "POST" and asked_path.endswith("/tokenize") and provider.tokenize:
            body = await request.json()
            return JSONResponse(provider.tokenize(body, provider.window))
        return _refusal(provider, Refused("Not Found", 404))


def _complete(provider: Provider, asked: Asked) -> Response:
    body, memory = asked.body, asked.memory
    memory.bodies.append(body)
    if memory.failing:
        return _failure(provider, memory.failing.pop(0), streamed=bool(body.get("stream")))
    refused = next(
        (found for rule in provider.rules if rule.check and (found := rule.check(asked))), None
    )
    refused = refused or _overflow(provider, body)
    if body["model"] not in provider.models:
        refused = Refused(f"The model `{body['model']}` does not exist.", 404, "model_not_found")
    if refused is not None:
        if refused.is_overflow:
            memory.overflows += 1
        else:
            memory.refused.append(refused.message)
        return _refusal(provider, refused)
    reply = model_reply(asked)
    for rule in provider.rules:
        reply = rule.shape(asked, reply) if rule.shape else reply
    read = tokens(body["messages"]) + tokens(body.get("tools") or "")
    usage = {"prompt_tokens": read, "completion_tokens": 20, "total_tokens": read + 20}
    if body.get("stream"):
        wanted = provider.stream.usage or bool(body.get("stream_options"))
        events = _events(provider.stream, reply, usage if wanted else None)
        return StreamingResponse(events, media_type="text/event-stream")
    return JSONResponse(_whole(body["model"], reply, usage))


def _overflow(provider: Provider, body: JsonObject) -> Refused | None:
    read = tokens(body["messages"]) + tokens(body.get("tools") or "")
    written = body.get("max_tokens") or body.get("max_completion_tokens") or 0
    if read + written <= provider.window:
        return None
    return provider.overflow.refused(read, written, provider.window)


def _refusal(provider: Provider, refused: Refused) -> Response:
    return JSONResponse(provider.error(refused), refused.status)


def _failure(provider: Provider, refused: Refused, *, streamed: bool) -> Response:
    """A failure that comes with a status, or in place of an answer."""
    if refused.status != 200 or not streamed:
        return _refusal(provider, refused)
    event = f"data: {json.dumps(provider.error(refused))}\n\ndata: [DONE]\n\n"
    return Response(event, media_type="text/event-stream")


def _finish(reply: Reply) -> str:
    return "tool_calls" if reply.calls else "stop"


def _call(call: JsonObject, number: int) -> JsonObject:
    more = {name: value for name, value in call.items() if name not in {"name", "arguments"}}
    function = {"name": call["name"], "arguments": call["arguments"]}
    return {"id": f"call_{number}", "type": "function", "function": function, **more}


def _whole(model: str, reply: Reply, usage: JsonObject) -> JsonObject:
    message: JsonObject = {"role": "assistant", "content": reply.content or None, **reply.fields}
    if reply.calls:
        message["tool_calls"] = [_call(call, number) for number, call in enumerate(reply.calls)]
    choice = {"index": 0, "message": message, "finish_reason": _finish(reply)}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [choice],
        "usage": usage,
    }


async def _events(stream: Stream, reply: Reply, usage: JsonObject | None) -> AsyncIterator[str]:
    for event in stream.first:
        yield _data(event)
    for delta in _deltas(stream, reply):
        if stream.comment:
            yield f"{stream.comment}\n\n"
        yield _data(_chunk(delta))
    yield _data(_chunk({}, _finish(reply)))
    if usage is not None:
        yield _data({"object": "chat.completion.chunk", "choices": [], "usage": usage})
    yield "data: [DONE]\n\n"


def _deltas(stream: Stream, reply: Reply) -> Iterator[JsonObject]:
    yield {"role": "assistant", "content": ""}
    for name, value in reply.fields.items():
        parts = _pieces(value) if isinstance(value, str) else [value]
        yield from ({name: part} for part in parts)
    yield from ({"content": piece} for piece in _pieces(reply.content))
    for number, call in enumerate(reply.calls):
        whole = _call(call, number)
        index = {"right": {"index": number}, "zero": {"index": 0}, "none": {}}[stream.index]
        arguments = _pieces(call["arguments"]) if stream.pieces else [call["arguments"]]
        for part, text in enumerate(arguments):
            function = {"arguments": text}
            if part == 0 or stream.names == "each":
                function["name"] = call["name"]
            begun = {key: value for key, value in whole.items() if key != "function"}
            yield {"tool_calls": [{**index, **(begun if part == 0 else {}), "function": function}]}


def _pieces(text: str) -> list[str]:
    return [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]


def _chunk(delta: JsonObject, finish: str | None = None) -> JsonObject:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 0,
        "choices": [choice],
    }


def _data(event: JsonObject) -> str:
    return f"data: {json.dumps(event, ensure_ascii=False)}\n\n"
