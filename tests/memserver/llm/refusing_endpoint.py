"""An endpoint that refuses requests as a test says, and the words of providers' refusals."""

import json
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from memserver.llm.openai_compatible import OpenAICompatible
from memserver.messages import Picture, PromptMessage
from tests.support.model_contract import PROMPT, TOOLS

Body = dict[str, Any]
Refusal = tuple[int, Any] | None
PLAIN = PROMPT[:2]
PICTURE = Picture("0" * 64, "image/png", 2, 3, data=b"png")
SHOWN = [
    PROMPT[0],
    PromptMessage("user", "Look"),
    PromptMessage("user", "This", pictures=(PICTURE,)),
]


def openai(message: str, status: int = 400, **more: Any) -> Refusal:
    return status, {"error": {"message": message, "type": "invalid_request_error", **more}}


def unknown(name: str) -> Refusal:
    return openai(f"Unsupported parameter: '{name}' is not supported with this model.", param=name)


def fastapi(*place: Any, value: Any = None) -> tuple[int, Any]:
    entry = {
        "type": "extra_forbidden",
        "loc": ["body", *place],
        "msg": "Extra inputs are not permitted",
        "input": value,
    }
    return 422, {"detail": [entry]}


def mistral(*place: Any) -> Refusal:
    detail = fastapi(*place)[1]
    return 422, {"object": "error", "message": detail, "type": "invalid_request_error"}


class Stub:
    """An endpoint that refuses what a test says, and answers the rest by a call, in the way it is asked."""

    def __init__(self) -> None:
        self.refuse: Callable[[Body], Refusal] = lambda body: None
        self.reply: Callable[[Body], Body] = answer
        self.bodies: list[Body] = []

    async def complete(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        refusal = self.refuse(body)
        if refusal is not None:
            return JSONResponse(refusal[1], refusal[0])
        reply = self.reply(body)
        if not body.get("stream"):
            return JSONResponse(reply)
        [choice] = reply["choices"]
        events = [
            {"choices": [{"delta": choice["message"]}]},
            {"choices": [{"delta": {}, "finish_reason": choice["finish_reason"]}]},
        ]
        lines = [f"data: {json.dumps(event)}\n\n" for event in events]
        return StreamingResponse(iter([*lines, "data: [DONE]\n\n"]), media_type="text/event-stream")

    @property
    def last(self) -> Body:
        return self.bodies[-1]


def answer(body: Body) -> Body:
    name, arguments = "now", {}
    if "report_ready" in json.dumps(body) or "you are ready" in json.dumps(body):
        name, arguments = "report_ready", {"ready": True}
    if "tools" in body:
        function = {"name": name, "arguments": json.dumps(arguments)}
        message: Body = {
            "content": None,
            "tool_calls": [{"index": 0, "id": "a", "function": function}],
        }
    else:
        message = {"content": json.dumps({"tool": name, "arguments": arguments})}
    return {"choices": [{"message": message, "finish_reason": "stop"}]}


async def call(model: OpenAICompatible, *, streamed: bool = False, tools: Any = TOOLS) -> str:
    sink = (lambda text: None) if streamed else None
    return (await model.call_tool(PROMPT, tools, max_tokens=50, on_text=sink)).call.name


def refusing(name: str, refusal: Refusal) -> Callable[[Body], Refusal]:
    return lambda body: refusal if name in body else None


def gpt5(body: Body) -> Refusal:
    if "max_tokens" in body:
        return openai(
            "Unsupported parameter: 'max_tokens' is not supported with this model. "
            "Use 'max_completion_tokens' instead.",
            param="max_tokens",
            code="unsupported_parameter",
        )
    return None


def o4_mini(body: Body) -> Refusal:
    return gpt5(body) or (unknown("parallel_tool_calls") if "parallel_tool_calls" in body else None)


def gpt56(body: Body) -> Refusal:
    if refusal := gpt5(body):
        return refusal
    if "tools" in body and body.get("reasoning_effort") != "none":
        return openai(
            "Function tools with reasoning_effort are not supported for gpt-5.6 in /v1/chat/completions. "
            "To use function tools, use /v1/responses or set reasoning_effort to 'none'.",
            param="reasoning_effort",
        )
    return None


def dashscope(body: Body) -> Refusal:
    if body.get("tool_choice") not in {None, "auto", "none"}:
        return openai(
            "<400> InternalError.Algo.InvalidParameter: The tool_choice parameter does not support being "
            "set to required or object in thinking mode"
        )
    return None
