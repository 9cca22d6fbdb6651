"""The scripted model as an OpenAI-compatible endpoint, for tests and benchmarks of many processes.

Owns the server's side of the wire; steps and rules are those of `scripted` and `scripted_rules`.
Run it: `python -m memserver.testing.scripted_server --port 8000 --rule echo`.
"""

import argparse
import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from memserver.errors import (
    ContextOverflow,
    MemserverError,
    ModelRejected,
    ModelTimeout,
    ModelUnavailable,
)
from memserver.llm.modes import PROBE
from memserver.llm.reply_parser import RawReply
from memserver.llm.tool_schema import TOOLS_HEADING
from memserver.llm.wire import RESULT_MARK
from memserver.messages import FunctionCall, JsonObject, Prompt, PromptMessage, ToolSpec
from memserver.testing.hashing_embedder import HashingEmbedder
from memserver.testing.scripted import (
    Broken,
    Call,
    Rule,
    Step,
    Writer,
    as_raw,
    count_words,
    due,
    fragments,
    shown,
    unless_alerted,
)
from memserver.testing.scripted_rules import RULES

_RESULT = re.compile(re.escape(RESULT_MARK) + r"([^\]\n]*)\]\n(.*)", re.DOTALL)
_LISTED_TOOL = re.compile(r"^- (\S+?)(?:: ((?:.|\n)*?))?\n  arguments: (\{.*\})$", re.MULTILINE)
Support = Literal["taken", "refused", "ignored"]
_Handler = Callable[[Request], Awaitable[Response]]
_STATUS: dict[type[Exception], int] = {
    ContextOverflow: 400,
    ModelRejected: 400,
    ModelUnavailable: 503,
}


@dataclass(frozen=True, slots=True)
class Abilities:
    """What the endpoint does with what not every endpoint knows: a refused field is a 400.

    Attributes:
        tools: native tool calling.
        response_format: answers held to a JSON schema.
        tokenize: POST /tokenize.
        adapters: POST /v1/load_lora_adapter and /v1/unload_lora_adapter.
    """

    tools: Support = "taken"
    response_format: Support = "taken"
    tokenize: bool = True
    adapters: bool = True


def create_scripted_app(  # noqa: PLR0913 - all but the rule have defaults and are named
    rule: Rule,
    *,
    model: str = "scripted",
    context_window: int = 8192,
    api_key: str = "",
    summary: str | Writer = "They talked.",
    abilities: Abilities | None = None,
    count: Callable[[str], int] = count_words,
) -> Starlette:
    """Make the app.

    Args:
        rule: makes the step that answers a prompt. An error becomes its HTTP status, and a
            ModelTimeout an answer that never comes. The probe is not put to it.
        model: the base model; adapters that are loaded are listed after it.
        context_window: what is said of it, as vLLM says it; a longer prompt is refused.
        api_key: what requests must have; empty asks for none.
        summary: what is answered where no tools are listed, or a function that makes a step from the prompt.
        abilities: which requests it takes; None takes all.
        count: tokens of a text.
    """
    able = abilities or Abilities()
    endpoint = _Endpoint(unless_alerted(rule), model, context_window, api_key, summary, able, count)
    posts: dict[str, _Handler] = {
        "/v1/chat/completions": endpoint.guard(endpoint.complete),
        "/v1/embeddings": _embed,
    }
    if able.tokenize:
        posts["/tokenize"] = endpoint.tokenize
    if able.adapters:
        posts["/v1/load_lora_adapter"] = endpoint.guard(endpoint.load)
        posts["/v1/unload_lora_adapter"] = endpoint.guard(endpoint.unload)
    routes = [Route(path, served, methods=["POST"]) for path, served in posts.items()]
    routes += [
        Route("/health", lambda _: Response()),
        Route("/v1/models", endpoint.guard(endpoint.models)),
    ]
    return Starlette(routes=routes)


@dataclass(frozen=True, slots=True)
class _Endpoint:
    rule: Rule
    model: str
    window: int
    api_key: str
    summary: str | Writer
    abilities: Abilities
    count: Callable[[str], int]
    adapters: dict[str, str] = field(default_factory=dict)

    def guard(self, handler: _Handler) -> _Handler:
        async def guarded(request: Request) -> Response:
            key = request.headers.get("authorization")
            if self.api_key and key != f"Bearer {self.api_key}":
                return _failure(401, "The API key is wrong.")
            return await handler(request)

        return guarded

    async def models(self, _request: Request) -> Response:
        card = {"id": self.model, "object": "model", "max_model_len": self.window, "parent": None}
        adapters = [
            {"id": name, "object": "model", "root": path, "parent": self.model}
            for name, path in self.adapters.items()
        ]
        return JSONResponse({"object": "list", "data": [card, *adapters]})

    async def load(self, request: Request) -> Response:
        body = await request.json()
        name, path = body["lora_name"], body["lora_path"]
        if name in self.adapters:
            words = f"The lora adapter '{name}' has already been loaded."
            return _failure(400, words, "InvalidUserInput")
        if not _is_adapter(path):
            words = f"Loading lora {name} failed: No adapter found for {path}"
            return _failure(404, words, "NotFoundError")
        self.adapters[name] = path
        return Response(f"Success: LoRA adapter '{name}' added successfully.")

    async def unload(self, request: Request) -> Response:
        name = (await request.json())["lora_name"]
        if self.adapters.pop(name, None) is None:
            return _failure(404, f"The lora adapter '{name}' cannot be found.", "NotFoundError")
        return Response(f"Success: LoRA adapter '{name}' removed successfully.")

    async def tokenize(self, request: Request) -> Response:
        body = await request.json()
        if body.get("model") not in {None, self.model, *self.adapters}:
            return _no_model(body["model"])
        count = self.count(body["prompt"])
        answer = {"count": count, "max_model_len": self.window, "tokens": list(range(count))}
        return JSONResponse(answer)

    async def complete(self, request: Request) -> Response:
        body = json.loads(await request.body())
        if body["model"] not in {self.model, *self.adapters}:
            return _no_model(body["model"])
        if (refusal := self._unable(body)) is not None:
            return refusal
        prompt = [_prompt_message(message) for message in body["messages"]]
        read = self._read(prompt, body)
        room = body.get("max_tokens") or body.get("max_completion_tokens") or 0
        if read + room > self.window:
            words = (
                f"This model's maximum context length is {self.window} tokens. However, you requested "
                f"{room} output tokens and your prompt contains {read} input tokens."
            )
            return _failure(400, words, "context_length_exceeded")
        step = await due(self._step(prompt, body))
        if isinstance(step, ModelTimeout):
            await asyncio.Event().wait()
        if isinstance(step, Exception):
            return _error_response(step)
        error = step.error if isinstance(step, Broken) else None
        call = step.call if isinstance(step, Broken) else step
        message = _message(call, native="tools" in body)
        written = self.count(json.dumps(message, ensure_ascii=False))
        usage = {
            "prompt_tokens": read,
            "completion_tokens": written,
            "total_tokens": read + written,
            "prompt_tokens_details": {"cached_tokens": read // 2},
        }
        if body.get("stream"):
            events = _events(message, usage, error)
            return StreamingResponse(events, media_type="text/event-stream")
        if error is not None:
            return _error_response(error)
        return JSONResponse(_completion(body["model"], message, usage))

    def _read(self, prompt: Prompt, body: JsonObject) -> int:
        """Tokens of the prompt, with what a template would put around it."""
        tools = json.dumps(body["tools"], ensure_ascii=False) if body.get("tools") else ""
        around = 4 * len(prompt)
        return self.count(tools) + around + sum(self.count(shown(message)) for message in prompt)

    def _step(self, prompt: Prompt, body: JsonObject) -> Step:
        tools = _offered(body)
        if [tool.name for tool in tools] == [PROBE.name]:
            return Call(PROBE.name, {"ready": True})
        if tools:
            return self.rule(prompt, tools)
        step = self.summary(prompt) if callable(self.summary) else self.summary
        return RawReply(step) if isinstance(step, str) else step

    def _unable(self, body: JsonObject) -> Response | None:
        """The refusal of a field, if any; fields that are ignored are taken out."""
        for name in ("tools", "response_format"):
            support: Support = getattr(self.abilities, name)
            if support == "refused" and name in body:
                return _failure(400, f"This endpoint does not take {name}.")
            if support == "ignored":
                body.pop(name, None)
        return None


async def _embed(request: Request) -> Response:
    body: JsonObject = await request.json()
    vectors = await HashingEmbedder().embed(body["input"])
    made = [
        {"object": "embedding", "index": index, "embedding": vector}
        for index, vector in enumerate(vectors)
    ]
    return JSONResponse({"object": "list", "data": made, "model": body["model"]})


def _is_adapter(path: str) -> bool:
    return Path(path, "adapter_config.json").is_file()


def _offered(body: JsonObject) -> list[ToolSpec]:
    """The tools in a request, whichever way it lists them."""
    if "tools" in body:
        functions = [tool["function"] for tool in body["tools"]]
        return [
            ToolSpec(function["name"], function.get("description", ""), function["parameters"])
            for function in functions
        ]
    if "response_format" not in body:
        system = str(body["messages"][0].get("content", "") if body["messages"] else "")
        _, _, listed = system.partition(TOOLS_HEADING)
        return [
            ToolSpec(name, description, json.loads(parameters))
            for name, description, parameters in _LISTED_TOOL.findall(listed)
        ]
    answers = body["response_format"]["json_schema"]["schema"]["anyOf"]
    shapes = [answer["properties"] for answer in answers]
    return [ToolSpec(shape["tool"]["const"], "", shape["arguments"]) for shape in shapes]


def _prompt_message(message: JsonObject) -> PromptMessage:
    """A message as it was before the wire form, as far as that shows."""
    text = message.get("content") or ""
    if isinstance(text, list):  # its pictures are not looked at
        text = "\n".join(part["text"] for part in text if part.get("type") == "text")
    result = _RESULT.fullmatch(text) if message["role"] == "user" else None
    if result is not None:
        return PromptMessage("tool", result[2], FunctionCall("", result[1], {}))
    if message["role"] == "tool":
        return PromptMessage("tool", text, FunctionCall(message["tool_call_id"], "", {}))
    if message.get("tool_calls"):
        made = message["tool_calls"][0]
        function = made["function"]
        call = FunctionCall(made["id"], function["name"], json.loads(function["arguments"]))
        return PromptMessage("assistant", text, call)
    return PromptMessage(message["role"], text)


def _message(step: Step, *, native: bool) -> JsonObject:
    """The answer's message; a call in JSON mode is text."""
    if isinstance(step, Call) and not native:
        text = json.dumps({"tool": step.name, "arguments": dict(step.arguments)})
        return {"content": step.text + text, "finish_reason": "stop"}
    if not isinstance(step, Call | RawReply | str):
        raise TypeError(f"{step!r} is no answer")
    raw = as_raw(step)
    message: JsonObject = {"content": raw.content, "finish_reason": raw.finish_reason or "stop"}
    if raw.reasoning:
        message["reasoning_content"] = raw.reasoning
    if raw.calls:
        message["tool_calls"] = [
            {
                "id": f"call_{index}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for index, call in enumerate(raw.calls)
        ]
    return message


def _completion(model: str, message: JsonObject, usage: JsonObject) -> JsonObject:
    finish_reason = message.pop("finish_reason")
    said = {"role": "assistant", **message}
    return {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": said, "finish_reason": finish_reason}],
        "usage": usage,
    }


async def _events(
    message: JsonObject, usage: JsonObject, error: Exception | None
) -> AsyncIterator[bytes]:
    """The answer in pieces; one that breaks ends with an error instead of its last pieces."""
    yield _event({"role": "assistant", "content": ""})
    for key in ("reasoning_content", "content"):
        for piece in fragments(message.get(key) or ""):
            yield _event({key: piece})
    for index, call in enumerate(message.get("tool_calls", ())):
        function = call["function"]
        named = {**function, "arguments": ""}
        yield _event({"tool_calls": [{**call, "index": index, "function": named}]})
        arguments = function["arguments"]
        pieces = fragments(arguments) if isinstance(arguments, str) else [arguments]
        for piece in pieces:
            yield _event({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    if error is not None:
        yield _data({"error": _error_body(error)})
        return
    yield _event({}, finish_reason=message["finish_reason"])
    yield _data({"object": "chat.completion.chunk", "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def _event(delta: JsonObject, finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return _data({"object": "chat.completion.chunk", "choices": [choice]})


def _data(value: JsonObject) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()


def _error_body(error: Exception) -> JsonObject:
    message = error.message if isinstance(error, MemserverError) else str(error)
    code: Any = _STATUS.get(type(error), 500)
    kind = "context_length_exceeded" if isinstance(error, ContextOverflow) else "scripted"
    return {"message": message, "type": kind, "code": code}


def _error_response(error: Exception) -> Response:
    body = _error_body(error)
    return _failure(body["code"], body["message"], body["type"])


def _failure(status: int, message: str, kind: str = "scripted") -> Response:
    return JSONResponse({"error": {"message": message, "type": kind, "code": status}}, status)


def _no_model(name: str) -> Response:
    return _failure(404, f"The model `{name}` does not exist.", "NotFoundError")


def main() -> None:
    """Serve a rule until interrupted."""
    parser = argparse.ArgumentParser(
        description="A scripted model as an OpenAI-compatible endpoint."
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--rule", choices=sorted(RULES), default="echo")
    parser.add_argument("--context-window", type=int, default=8192)
    for ability in ("--tools", "--response-format"):
        parser.add_argument(ability, choices=get_args(Support), default="taken")
    arguments = parser.parse_args()
    app = create_scripted_app(
        RULES[arguments.rule],
        context_window=arguments.context_window,
        abilities=Abilities(arguments.tools, arguments.response_format),
    )
    uvicorn.run(app, host=arguments.host, port=arguments.port, log_level="warning", lifespan="off")


if __name__ == "__main__":
    main()
