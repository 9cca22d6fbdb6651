"""Clients of other people, unmodified: what OpenAI's API and MCP are to those who use memserver by them."""

import asyncio
import json
import queue
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from typing_extensions import override

from memserver.client import Client as Memserver
from memserver.messages import Prompt, ToolSpecs
from memserver.testing.scripted import Call, Held, ScriptedModel, Step, say
from memserver.testing.scripted_rules import echo, last_user_text
from memserver_evals.colbench.frontend.browser import find_chromium
from tests.clients import programs, table
from tests.clients.table import CLIENTS, STEPS, Client
from tests.support.client import served
from tests.support.nightly import NIGHTLY
from tests.support.server import OneDatabase

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # pip and npm may have to download
SECONDS = 120
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


class Endless(asyncio.Event):
    """Never set; notes that nobody waits any more."""

    given_up = threading.Event()

    @override
    async def wait(self) -> Any:
        try:
            await super().wait()
        finally:
            self.given_up.set()


def rule(prompt: Prompt, tools: ToolSpecs) -> Step:
    match last_user_text(prompt):
        case "What is the weather in Oslo?" if prompt[-1].role == "tool":
            assert "sunny" in prompt[-1].text
            return say("It is sunny in Oslo.")
        case "What is the weather in Oslo?":
            return Call("get_weather", {"city": "Oslo"})
        case "Who am I?":
            return Call("send_message", {"message": STEPS["structured"]})
        case "Write for ever.":
            return Held(say("It ends."), Endless())
        case _:
            return echo(prompt, tools)


class Page(SimpleHTTPRequestHandler):
    """Serves the page and the SDK that it loads, and takes what the page found."""

    found: "queue.Queue[dict[str, Any]]" = queue.Queue()

    @override
    def translate_path(self, path: str) -> str:
        name = path.partition("?")[0]
        if name.startswith("/openai/"):
            return str(programs.node_folder() / "node_modules" / name[1:])
        return str(programs.HERE / "browser" / name[1:])

    @override
    def guess_type(self, path: Any) -> str:
        return "text/javascript" if str(path).endswith("js") else super().guess_type(path)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.found.put(json.loads(body))
        self.send_response(204)
        self.end_headers()

    @override
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def page_server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@dataclass
class Place:
    """The server that the clients speak with, its operator's key, and where their pages come from."""

    url: str
    key: str
    pages: str

    def new_agent(self) -> None:
        with Memserver(self.url, api_key=self.key) as client:
            for old in client.agents.all():
                client.agents.delete(old.id)
            client.agents.create("sam")


@pytest.fixture(scope="module")
def place(shared_database: OneDatabase) -> Iterator[Place]:
    model = ScriptedModel(rule)
    with (
        page_server() as pages,
        served(shared_database, model, cors_origins=[pages], cancel_on_hang_up=True) as server,
    ):
        with Memserver(server.url) as client:
            key = client.keys.create("me", scopes=["admin"]).key
        assert key is not None
        yield Place(server.url, key, pages)


def toured(
    place: Place, runs_in: str, script: str, steps: list[str], folder: Path
) -> dict[str, Any]:
    """What came of each step."""
    arguments = [script, f"{place.url}/v1", place.key, *steps]
    match runs_in:
        case "python":
            tour = programs.HERE / "python" / "tour.py"
            printed = programs.run([*programs.python(), str(tour), *arguments], folder)
        case "node":
            printed = programs.run(
                [*programs.node(), "tour.mjs", *arguments], programs.node_folder()
            )
        case _:
            return in_page(place, steps, folder)
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found


def in_page(place: Place, steps: list[str], folder: Path) -> dict[str, Any]:

    program = find_chromium()
    if program is None:
        pytest.skip("Chromium is not installed")
    query = urlencode({"url": f"{place.url}/v1", "key": place.key, "steps": ",".join(steps)})
    command = [program, *FLAGS, f"--user-data-dir={folder}", f"{place.pages}/page.html?{query}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            return Page.found.get(timeout=SECONDS)
        finally:
            process.terminate()


CASES = [pytest.param(client, id=f"{client.runs_in}-{client.script}") for client in CLIENTS]


@pytest.mark.skipif(not NIGHTLY, reason="takes minutes: make nightly")
@pytest.mark.parametrize("client", CASES)
def test_a_client_does_all_that_the_table_says(client: Client, place: Place, tmp_path: Path):
    place.new_agent()
    Endless.given_up.clear()
    wanted = {step: STEPS[step] for step in client.steps}
    if client.runs_in == "browser":
        # An error's status, and a header of memserver's own, when a request is repeated.
        wanted |= {"error": [404, "model_not_found"], "header": "true"}
    steps = [*wanted, *({"header"} & wanted.keys())]
    found = toured(place, client.runs_in, client.script, steps, tmp_path)
    assert "".join(part for part in found["stream"] if part) == STEPS["stream"], found
    assert found | {"stream": STEPS["stream"]} == wanted
    if "stop" in client.steps:
        assert Endless.given_up.wait(30), "the model still writes"


@pytest.mark.skipif(not NIGHTLY, reason="make nightly")
@pytest.mark.parametrize("runs_in", ["python", "node"])
def test_an_mcp_client_uses_a_key_at_once_or_after_it_found_no_oauth(
    runs_in: str, place: Place, tmp_path: Path
):
    place.new_agent()
    found = toured(place, runs_in, "mcp", ["key", "oauth_first"], tmp_path)
    error, *agents = found["oauth_first"]
    assert found["key"] == agents == ["sam"]
    assert "404" in error
    assert "memserver has no OAuth: send an API key" in error


def test_the_page_has_the_table():
    assert table.PAGE.read_text(encoding="utf-8") == table.written()
