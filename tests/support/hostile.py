"""What an attacker sends: schemas, bodies, answers of MCP servers; and how long a loop is blocked by it."""

import asyncio
import gc
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

JSON = {"Content-Type": "application/json"}


def doubling(depth: int) -> dict[str, Any]:
    """A schema in which each level holds a value twice to the next one."""
    levels: dict[str, Any] = {
        f"l{n}": {"allOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(depth)
    }
    return {"type": "object", "$ref": "#/$defs/l0", "$defs": {**levels, f"l{depth}": {}}}


def wide(count: int) -> dict[str, Any]:
    """A schema that is no attack, but large."""
    return {"type": "object", "properties": {f"a{n}": {"enum": ["a", n]} for n in range(count)}}


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"not": schema}
    return {"type": "object", **schema}


def holding(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": schema}}


BRANCHING = {
    "type": "object",
    "properties": {"x": {"$ref": "#/$defs/tree"}},
    "$defs": {
        "tree": {
            "oneOf": [
                {"properties": {"x": {"$ref": "#/$defs/tree"}}, "required": ["a"]},
                {"properties": {"x": {"$ref": "#/$defs/tree"}}, "required": ["b"]},
                {"properties": {"x": {"$ref": "#/$defs/tree"}}, "required": ["c"]},
            ]
        }
    },
}
"""Taken, since no value is held to many schemas at once; but work triples with each level of a value."""

REFUSED_SCHEMAS: dict[str, dict[str, Any]] = {
    "references that double": doubling(17),
    "references that double for years": doubling(40),
    "references in a circle": {
        "type": "object",
        "$ref": "#/$defs/a",
        "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}},
    },
    "a chain of references": {
        "type": "object",
        "$ref": "#/$defs/l0",
        "$defs": {f"l{n}": {"$ref": f"#/$defs/l{n + 1}"} for n in range(200)} | {"l200": {}},
    },
    "a remote reference": holding({"$ref": "https://example.org/schema"}),
    "a reference by anchor": holding({"$ref": "#a", "$anchor": "a"}),
    "a dynamic reference": holding({"$dynamicRef": "#/$defs/a"}),
    "a base of its own": holding({"$id": "https://json-schema.org/draft/2020-12/schema"}),
    "what is left over": {"type": "object", "unevaluatedProperties": {"type": "string"}},
    "more schemas than are taken": wide(2000),
    "schemas that nest deep": deep(500),
    "a pattern that looks ahead": holding({"pattern": "^(?=a)b"}),
    "a pattern that looks back": holding({"pattern": r"(a+)+\1"}),
    "a pattern that repeats too much": holding({"pattern": "((a{100}){100}){100}"}),
    "a long pattern": holding({"pattern": "a" * 2000}),
    "a named pattern": {"type": "object", "patternProperties": {"^(?!a)": {}}},
    "different things that are required": {"type": "object", "required": [{}] * 20_000},
    "a huge number": holding({"multipleOf": 10**400}),
}

TAKEN_SCHEMAS: dict[str, dict[str, Any]] = {
    "a pattern that explodes elsewhere": holding({"pattern": "^(a+)+$"}),
    "names that explode elsewhere": {"type": "object", "patternProperties": {"^(a+)+$": {}}},
    "a tree that branches": BRANCHING,
    "different items": holding({"type": "array", "uniqueItems": True}),
    "many choices": holding({"enum": list(range(10_000))}),
    "a small divisor": holding({"multipleOf": 1e-308}),
    "as many schemas as are taken": wide(900),
}


def tree(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"x": value}
    return value


ARGUMENTS: dict[str, Any] = {
    "a pattern that explodes elsewhere": {"x": "a" * 40 + "!"},
    "names that explode elsewhere": {"a" * 40 + "!": 1},
    "a tree that branches": tree(30),
    "different items": {"x": [{"a": n} for n in range(3000)]},
    "many choices": {"x": [0] * 3000},
    "a small divisor": {"x": 1e308},
    "as many schemas as are taken": {f"a{n}": [] for n in range(900)},
}
"""What a model calls the tool of each schema that is taken with."""


def body(text: str) -> bytes:
    return text.encode()


def bodies() -> dict[str, tuple[str, bytes]]:
    """Path and body of requests that are refused."""
    millions = 20_000_000
    return {
        "a list of many numbers": (
            "/v1/agents",
            body('{"metadata":{"a":[' + "1," * millions + "1]}}"),
        ),
        "a list of many objects": (
            "/v1/agents",
            body('{"metadata":{"a":[' + "{}," * millions + "1]}}"),
        ),
        "as many objects as are read": (
            "/v1/agents",
            body('{"metadata":{"a":[' + ",".join(["[" + "{}," * 20_000 + "1]"] * 20) + "]}}"),
        ),
        "a long text of metadata": (
            "/v1/agents",
            body('{"metadata":{"a":"' + "a" * 60_000_000 + '"}}'),
        ),
        "halves of characters": (
            "/v1/agents",
            body('{"metadata":{"a":["' + '","'.join(["\\ud800" * 1_000_000] * 9) + '"]}}'),
        ),
        "many unknown fields": (
            "/v1/agents",
            body("{" + ",".join(f'"field{n}":1' for n in range(400_000)) + "}"),
        ),
        "unknown fields that are taken apart": (
            "/v1/agents",
            body("{" + ",".join(f'"{n}{"x" * 1000}":1' for n in range(1900)) + "}"),
        ),
        "a name of megabytes": ("/v1/agents", body('{"' + "x" * 50_000_000 + '":1}')),
        "long numbers": (
            "/v1/agents",
            body('{"metadata":{"a":[' + ("9" * 4000 + ",") * 10_000 + "1]}}"),
        ),
        "many wrong messages": (
            "/v1/chat/completions",
            body('{"model":"sam","messages":[' + "1," * 19_000 + "1]}"),
        ),
        "many wrong parts": (
            "/v1/responses",
            body('{"model":"sam","input":[' + "1," * 19_000 + "1]}"),
        ),
        "text that is no JSON": ("/v1/agents", b'"' + b"x" * 60_000_000),
    }


class McpServer:
    """An MCP server over HTTP whose tools/list is what is set; None: it never comes."""

    def __init__(self) -> None:
        self.listed: Any = {"tools": []}
        self.initialized: dict[str, Any] = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "hostile", "version": "1"},
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response: ASGIApp = await self._answer(Request(scope, receive))
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        if request.method != "POST":
            return Response(status_code=405)
        asked = json.loads(await request.body())
        if "id" not in asked:
            return Response(status_code=202)
        if asked["method"] == "tools/list" and self.listed is None:
            await asyncio.Event().wait()
        results = {"initialize": self.initialized, "tools/list": self.listed}
        if asked["method"] not in results:
            error = {"code": -32601, "message": "Method not found"}
            return JSONResponse({"jsonrpc": "2.0", "id": asked["id"], "error": error})
        result = results[asked["method"]]
        return JSONResponse({"jsonrpc": "2.0", "id": asked["id"], "result": result})


def listed(*schemas: Any) -> dict[str, Any]:
    return {"tools": [{"name": f"t{n}", "inputSchema": each} for n, each in enumerate(schemas)]}


@dataclass
class Blocked:
    """The longest time for which the loop answered nothing, and what was asked then."""

    seconds: float = 0.0
    during: str = ""
    now: str = ""


@asynccontextmanager
async def watched_loop() -> AsyncIterator[Blocked]:
    """Measure how long the loop is blocked.

    Counted is no more than the CPU time that this process took meanwhile: what a busy machine gives to others
    blocks nothing of ours.
    """
    blocked = Blocked()

    async def watch() -> None:
        while True:
            wall, cpu = time.perf_counter(), time.process_time()
            await asyncio.sleep(0.005)
            gap = min(time.perf_counter() - wall, time.process_time() - cpu)
            if gap > blocked.seconds:
                blocked.seconds, blocked.during = gap, blocked.now

    gc.collect()
    gc.freeze()  # as a server's process does when it has started
    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    try:
        yield blocked
    finally:
        watching.cancel()
        gc.unfreeze()
