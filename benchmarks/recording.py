"""Records what memserver asks a model, so that the very same requests can be put to it again.

A proxy in a process of its own stands between the two in a pass that isn't measured. Requests are distinguished by the
mark in what was said last. Run it: `python -m benchmarks.recording --target http://… --port 8001 --file bodies.jsonl`.
"""

import argparse
import json
import re
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import aiohttp
from aiohttp import web

from benchmarks.load import Conversation, Request, Turn
from tests.support.servers import ServerProcess, free_port, plain_environment, started

COMPLETIONS = "/v1/chat/completions"
_MARK = re.compile(r"Note (\d+)\.(\d+): ")
Recorded = dict[int, dict[int, list[bytes]]]
"""Bodies by conversation and turn, in the order in which they were sent."""


@contextmanager
def recording_proxy(target: str, folder: Path, file: Path) -> Iterator[ServerProcess]:
    """The proxy, answering."""
    port = free_port()
    module = [sys.executable, "-m", "benchmarks.recording"]
    options = ["--target", target, "--port", str(port), "--file", str(file)]
    root = str(Path(__file__).parents[1])
    environment = plain_environment(folder, {})
    paths = [root, *filter(None, [environment.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = ":".join(paths)
    with started([*module, *options], port, folder, {}, environment) as process:
        process.wait_until_healthy("/health")
        yield process


def recorded(file: Path) -> Recorded:
    """What was recorded; requests without a mark (a probe, a summary) are left out."""
    found: dict[int, dict[int, list[bytes]]] = defaultdict(lambda: defaultdict(list))
    for line in file.read_text(encoding="utf-8").splitlines():
        marks = _MARK.findall(line)
        if marks:
            conversation, turn = map(int, marks[-1])
            found[conversation][turn].append(line.encode())
    return {number: dict(turns) for number, turns in found.items()}


def replay(turns: dict[int, list[bytes]], *, stream: bool) -> Conversation:
    """A recorded conversation, put to the model directly; streamed as memserver would have streamed it."""
    return [
        Turn(tuple(Request(COMPLETIONS, _as(body, stream=stream)) for body in turns[number]))
        for number in sorted(turns)
    ]


def _as(body: bytes, *, stream: bool) -> bytes:
    if not stream:
        return body
    asked = {**json.loads(body), "stream": True, "stream_options": {"include_usage": True}}
    return json.dumps(asked, ensure_ascii=False, separators=(",", ":")).encode()


def proxy(target: str, file: Path) -> web.Application:
    """The app: passes everything on, and writes each completion's body down as one line."""
    app = web.Application(client_max_size=2**26)

    async def session(app: web.Application) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(
            target,
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=4),
            timeout=aiohttp.ClientTimeout(total=600),
        ) as opened:
            app[_SESSION] = opened
            with file.open("a", encoding="utf-8") as log:
                app[_LOG] = log
                yield

    async def pass_on(request: web.Request) -> web.Response:
        body = await request.read()
        if request.path == COMPLETIONS:
            app[_LOG].write(body.decode() + "\n")
            app[_LOG].flush()
        async with app[_SESSION].request(
            request.method,
            request.path_qs,
            data=body or None,
            headers={"Content-Type": "application/json"},
        ) as answer:
            return web.Response(
                status=answer.status, body=await answer.read(), content_type=answer.content_type
            )

    app.cleanup_ctx.append(session)
    app.router.add_route("*", "/{path:.*}", pass_on)
    return app


_SESSION: web.AppKey[aiohttp.ClientSession] = web.AppKey("session", aiohttp.ClientSession)
_LOG: web.AppKey[TextIO] = web.AppKey("log", TextIO)


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--file", type=Path, required=True)
    asked = parser.parse_args()
    app = proxy(asked.target, asked.file)
    web.run_app(app, host="127.0.0.1", port=asked.port, print=None)


if __name__ == "__main__":
    main()
