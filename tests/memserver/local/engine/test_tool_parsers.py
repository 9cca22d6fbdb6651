"""Models of every family behind vLLM's real parsers: whatever they write, a call or a violation.

What the parsers make of the outputs is recorded, so that vLLM need not be loaded to test what we make of that. It is
asked again by `make nightly`, and whenever memserver's request, the outputs, or vLLM's version are others; `RECORD=1`
writes it down.
"""

import asyncio
import gzip
import hashlib
import json
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from memserver.errors import ModelRejected, ProtocolViolation
from memserver.llm.openai_compatible import ModelOptions, OpenAICompatible
from memserver.local.engine.paths import BASE_NAME, EnginePaths
from memserver.openai_http.endpoint import Endpoint
from tests.memserver.local.engine.model_outputs import (
    CASES,
    FAMILIES,
    TOOLS,
    Called,
    Case,
    Family,
    Violation,
)
from tests.support.http_app import serving
from tests.support.model_contract import PROMPT
from tests.support.nightly import NIGHTLY
from tests.support.real_engine import engine_home

pytestmark = [pytest.mark.model, pytest.mark.timeout(300)]

ANSWERS = Path(__file__).with_name("vllm_answers.py")
RECORDED = Path(__file__).with_name("vllm_answers.json.gz")
VERSIONS = Path(__file__).parents[4] / "constraints" / "engine.txt"
Answer = dict[str, Any]


class Served:
    """An endpoint that gives the answer which is set, whole or streamed as it is asked."""

    def __init__(self) -> None:
        self.answer: Answer = {}
        self.asked: Answer = {}

    async def complete(self, request: Request) -> Response:
        self.asked = await request.json()
        if not self.asked.get("stream"):
            answer = self.answer["whole"]
            return Response(answer["text"], answer["status"], media_type="application/json")
        lines = [f"data: {event}\n\n" for event in self.answer["streamed"]]
        return StreamingResponse(iter(lines), media_type="text/event-stream")


@pytest.fixture(scope="module")
def served() -> Served:
    return Served()


@pytest.fixture(scope="module")
def url(served: Served) -> Iterator[str]:
    route = Route("/v1/chat/completions", served.complete, methods=["POST"])
    with serving(Starlette(routes=[route])) as base:
        yield f"{base}/v1"


@pytest.fixture
async def model(url: str) -> AsyncIterator[OpenAICompatible]:
    model = OpenAICompatible(Endpoint(url, max_retries=0), ModelOptions(model="m", mode="tools"))
    yield model
    await model.aclose()


@pytest.fixture(scope="module")
def answers(
    url: str, served: Served, tmp_path_factory: pytest.TempPathFactory
) -> dict[Any, Answer]:
    """What vLLM answers, for each family and case, to the request that memserver sends."""
    keys = [(family, case) for family in FAMILIES for case in CASES]
    asked = {
        "body": _body(url, served),
        "families": [family.described for family in FAMILIES],
        "outputs": [
            {"family": family.name, "text": case.output(family), "finish": case.finish}
            for family, case in keys
        ],
    }
    made = _recorded_or_made(asked, tmp_path_factory.mktemp("answers"))
    return {
        (family.name, case.name): answer for (family, case), answer in zip(keys, made, strict=True)
    }


def _recorded_or_made(asked: Answer, folder: Path) -> list[Answer]:
    asked_for = json.dumps(asked, sort_keys=True).encode()
    [version] = [line for line in VERSIONS.read_text().splitlines() if line.startswith("vllm")]
    digest = hashlib.sha256(asked_for + ANSWERS.read_bytes() + version.encode()).hexdigest()
    if RECORDED.is_file() and not NIGHTLY:
        recorded = json.loads(gzip.decompress(RECORDED.read_bytes()))
        if recorded["digest"] == digest:
            answers: list[Answer] = recorded["answers"]
            return answers
    made = _made_by_vllm(asked, folder)
    if os.environ.get("RECORD"):
        text = json.dumps({"digest": digest, "answers": made})
        RECORDED.write_bytes(gzip.compress(text.encode(), mtime=0))
    return made


def _made_by_vllm(asked: Answer, folder: Path) -> list[Answer]:
    paths = EnginePaths(engine_home())
    (folder / "asked.json").write_text(json.dumps(asked), encoding="utf-8")
    command = [
        paths.python,
        ANSWERS,
        paths.of(BASE_NAME),
        folder / "asked.json",
        folder / "made.json",
    ]
    offline = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CACHE_ROOT": str(folder)}
    done = subprocess.run(
        command, env=os.environ | offline, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    made: list[Answer] = json.loads((folder / "made.json").read_text(encoding="utf-8"))
    return made


def _body(url: str, served: Served) -> Answer:
    """The body of memserver's request for a call of one of the tools."""

    async def ask() -> None:
        model = OpenAICompatible(
            Endpoint(url, max_retries=0), ModelOptions(model="m", mode="tools")
        )
        served.answer = {"whole": {"status": 200, "text": '{"choices": [{"message": {}}]}'}}
        with pytest.raises(ProtocolViolation):
            await model.call_tool(PROMPT, TOOLS, max_tokens=50)
        await model.aclose()

    asyncio.run(ask())
    return served.asked


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
@pytest.mark.parametrize("kind", ["whole", "streamed"])
async def test_an_output_becomes_the_call_that_was_meant_or_a_violation_that_says_why(
    answers: dict[Any, Answer],
    served: Served,
    model: OpenAICompatible,
    kind: str,
    family: Family,
    case: Case,
) -> None:
    served.answer = answers[family.name, case.name]
    listener = (lambda _: None) if kind == "streamed" else None
    outcome = case.outcome_for(family.name, kind)
    if isinstance(outcome, Called):
        reply = await model.call_tool(PROMPT, TOOLS, max_tokens=50, on_text=listener)
        assert (reply.call.name, reply.call.arguments) == (outcome.name, outcome.arguments)
    else:
        kinds = ProtocolViolation if isinstance(outcome, Violation) else ModelRejected
        with pytest.raises(kinds) as caught:
            await model.call_tool(PROMPT, TOOLS, max_tokens=50, on_text=listener)
        error = caught.value
        said = error.complaint if isinstance(error, ProtocolViolation) else error.message
        assert outcome.saying in said
