"""A turn works, and its text is streamed while it comes, however the endpoint cuts its streams."""

import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.support.http_app import serving as serving_app
from tests.support.model_endpoint import serving_over_http
from tests.support.server import OneDatabase

JsonObject = dict[str, Any]
FIRST = '{"message": "Hello, '
REST = 'you."}'
SECOND = '{"section": "human", "content": "no", "request_heartbeat": true}'


def piece(arguments: str = "", name: str | None = "send_message", **more: Any) -> JsonObject:
    function = {"arguments": arguments} if name is None else {"name": name, "arguments": arguments}
    return {"tool_calls": [{"function": function, **more}]}


SHAPES: dict[str, list[JsonObject]] = {
    "two calls, all of index 0": [
        piece(FIRST, index=0, id="a"),
        piece(REST, None, index=0),
        piece(SECOND, "working_context_append", index=0, id="b"),
    ],
    "two calls without an index": [
        piece(FIRST),
        piece(REST, None),
        piece(SECOND, "working_context_append"),
    ],
    "index as text": [
        piece(FIRST, index="0"),
        piece(SECOND, "working_context_append", index="1"),
        piece(REST, None, index="0"),
    ],
    "index from one": [piece(FIRST, index=1), piece(REST, None, index=1)],
    "name in each piece": [piece(FIRST, index=0), piece(REST, index=0), piece(index=0)],
    "name and another id in each piece": [piece(FIRST, id="a"), piece(REST, id="b")],
    "name twice": [piece(index=0), piece(index=0), piece(FIRST + REST, None, index=0)],
    "name in two pieces": [
        piece(name="send_", index=0),
        piece(FIRST, "message", index=0),
        piece(REST, None, index=0),
    ],
    "name late": [piece(FIRST, None, index=0), piece(REST, index=0)],
    "name last": [piece(FIRST, None, index=0), piece(REST, None, index=0), piece(index=0)],
    "arguments as an object": [
        {
            "tool_calls": [
                {"function": {"name": "send_message", "arguments": json.loads(FIRST + REST)}}
            ]
        }
    ],
    "one call, not in a list": [{"tool_calls": piece(FIRST + REST)["tool_calls"][0]}],
}


async def events(deltas: list[JsonObject]) -> AsyncIterator[str]:
    for delta in deltas:
        yield f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta}]})}\n\n"
    ended = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    yield f"data: {json.dumps(ended)}\n\ndata: [DONE]\n\n"


async def complete(request: Request) -> Response:
    asked = await request.json()
    shape = asked["messages"][-1]["content"].partition("] ")[2]
    return StreamingResponse(events(SHAPES.get(shape, [])), media_type="text/event-stream")


async def models(_request: Request) -> Response:
    return JSONResponse({"data": [{"id": "m", "max_model_len": 30_000}]})


async def test_a_call_is_heard_in_every_shape_of_a_stream(database: OneDatabase) -> None:
    routes = [
        Route("/v1/chat/completions", complete, methods=["POST"]),
        Route("/v1/models", models),
    ]
    heard = {}
    with serving_app(Starlette(routes=routes)) as url:
        async with serving_over_http(database, f"{url}/v1", llm_mode="tools") as server:
            agent = await server.create_agent()
            for shape in SHAPES:
                reported = await server.events(agent, shape)
                deltas = [each["text"] for kind, each in reported if kind == "message_delta"]
                said = [each["text"] for kind, each in reported if kind == "message"]
                heard[shape] = ("".join(deltas), said)
    assert heard == dict.fromkeys(SHAPES, ("Hello, you.", ["Hello, you."]))
