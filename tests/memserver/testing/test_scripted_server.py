import socket
import subprocess
import sys
from collections.abc import Iterator

import httpx2
import pytest

from memserver.errors import (
    ContextOverflow,
    ModelNotFound,
    ModelRejected,
    ModelTimeout,
    ModelUnavailable,
    ProtocolViolation,
)
from memserver.llm.openai_compatible import ModelOptions, OpenAICompatible
from memserver.messages import FunctionCall, PromptMessage, ToolSpec
from memserver.openai_http.endpoint import Endpoint
from memserver.testing.scripted_rules import RULES, last_user_text
from memserver.testing.scripted_server import create_scripted_app
from tests.support.http_app import serving

SEND = ToolSpec(
    "send_message",
    "",
    {
        "type": "object",
        "properties": {"inner_thought": {"type": "string"}, "message": {"type": "string"}},
        "required": ["inner_thought", "message"],
    },
)
SEARCH = ToolSpec(
    "recall_memory_search",
    "",
    {
        "type": "object",
        "properties": {"query": {"type": "string"}, "page": {"type": "integer"}},
        "required": ["query", "page"],
    },
)
USER = PromptMessage("user", "[2026-02-07 14:03] Hello [you]")
FOUND = PromptMessage("tool", "nothing", FunctionCall("call_1", "recall_memory_search", {}))
PROMPT = [PromptMessage("system", "Be kind."), USER]


async def answer(url: str, mode, prompt=PROMPT, **options):
    model = OpenAICompatible(
        Endpoint(f"{url}/v1", max_retries=0, **options), ModelOptions(mode=mode)
    )
    try:
        return (await model.call_tool(prompt, [SEND, SEARCH], max_tokens=50)).call
    finally:
        await model.aclose()


@pytest.fixture(params=["tools", "json_schema", "text"])
def mode(request: pytest.FixtureRequest) -> str:
    return request.param


async def test_echo_says_what_the_user_said_without_the_time(mode):
    with serving(create_scripted_app(RULES["echo"])) as url:
        call = await answer(url, mode)
    assert call.arguments == {"inner_thought": "", "message": "echo: Hello [you]"}


async def test_search_then_echo_takes_two_steps(mode):
    with serving(create_scripted_app(RULES["search_then_echo"])) as url:
        first = await answer(url, mode)
        second = await answer(url, mode, [*PROMPT, FOUND])
    assert (first.name, first.arguments) == ("recall_memory_search", {"query": "Hello", "page": 0})
    assert second.arguments["message"] == "echo: Hello [you]"


@pytest.mark.parametrize(
    ("rule", "error"), [("prose", ProtocolViolation), ("down", ModelUnavailable)]
)
async def test_the_other_rules_fail_as_they_say(mode, rule: str, error: type[Exception]):
    with serving(create_scripted_app(RULES[rule])) as url, pytest.raises(error):
        await answer(url, mode)


async def test_a_step_that_times_out_never_answers(mode):
    app = create_scripted_app(lambda prompt, tools: ModelTimeout(""))
    with serving(app) as url, pytest.raises(ModelTimeout):
        await answer(url, mode, timeout=0.2)


async def test_a_wrong_key_is_refused():
    with serving(create_scripted_app(RULES["echo"], api_key="right")) as url:
        assert (await answer(url, "tools", api_key="right")).name == "send_message"
        with pytest.raises(ModelRejected) as caught:
            await answer(url, "tools", api_key="wrong")
    assert "MEMSERVER_LLM_API_KEY" in caught.value.hint


async def test_a_model_it_does_not_have_is_refused():
    with serving(create_scripted_app(RULES["echo"])) as url:
        model = OpenAICompatible(Endpoint(f"{url}/v1"), ModelOptions(model="other"))
        with pytest.raises(ModelNotFound) as caught:
            await model.call_tool(PROMPT, [SEND], max_tokens=5)
        await model.aclose()
    assert "MEMSERVER_LLM_MODEL" in caught.value.hint


async def test_a_prompt_that_is_too_long_is_refused_as_vllm_does(mode):
    app = create_scripted_app(RULES["echo"], context_window=60)
    reported = "maximum context length is 60 tokens"
    with serving(app) as url, pytest.raises(ContextOverflow, match=reported):
        await answer(url, mode)


def test_notices_and_results_are_not_what_the_user_said():
    notice = PromptMessage("user", "[system] Memory is nearly full.")
    assert last_user_text([*PROMPT, FOUND, notice]) == "Hello [you]"
    assert last_user_text(PROMPT[:1]) == ""


@pytest.fixture
def process() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    running = subprocess.Popen(
        [sys.executable, "-m", "memserver.testing.scripted_server", "--port", str(port)],
        stderr=subprocess.PIPE,
    )
    yield f"http://127.0.0.1:{port}"
    running.terminate()
    running.communicate()


async def test_it_runs_as_a_process_and_says_when_it_is_healthy(process: str):
    healthy = httpx2.AsyncHTTPTransport(retries=8)
    async with httpx2.AsyncClient(transport=healthy, base_url=process) as client:
        assert (await client.get("/health")).status_code == 200
        counted = (await client.post("/tokenize", json={"prompt": "one two"})).json()
    assert counted["count"] == 2
    assert (await answer(process, "tools")).arguments["message"] == "echo: Hello [you]"
