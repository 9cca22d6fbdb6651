"""The win rate of two systems by a judge model."""

import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from memserver.openai_http.client import EndpointClient
from memserver.openai_http.endpoint import Endpoint
from memserver.prompts import Prompts
from memserver_evals.colbench.backend.examples import BackendExample
from memserver_evals.colbench.chat import PartModel
from memserver_evals.colbench.frontend.browser import find_chromium
from memserver_evals.colbench.frontend.examples import FrontendExample
from memserver_evals.colbench.frontend.layouts import VIEWPORT, Layout
from memserver_evals.colbench.frontend.rendering import Renderer
from memserver_evals.colbench.winning import CodeJudge, PictureJudge, read_choice, win_rate
from tests.support.http_app import Current

EXAMPLE = BackendExample(
    "x", "Add one. The signature is: def f(n)", "def f(n): return n + 1", ("f(1)",)
)


@pytest_asyncio.fixture
async def model(served: str) -> AsyncIterator[PartModel]:
    client = EndpointClient(Endpoint(served))
    yield PartModel(client, "judge")
    await client.aclose()


def judge(answers: list[str], asked: list[str]) -> Starlette:
    async def chat(request: Request) -> JSONResponse:
        asked.append(json.dumps((await request.json())["messages"]))
        return JSONResponse({"choices": [{"message": {"content": answers.pop(0)}}]})

    return Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("A", "A"),
        ("**B**", "B"),
        ("Answer: A.", "A"),
        ("tie", "TIE"),
        ("Both add.\nB\n", "B"),
        ("A or B", None),
        ("A is better", None),
        ("", None),
    ],
)
def test_a_judge_s_answer_is_a_line_of_its_own(text: str, choice: str | None) -> None:
    assert read_choice(text) == choice


@pytest.mark.parametrize(
    ("answers", "win"),
    [
        (["A", "B"], 1.0),
        (["B", "A"], 0.0),
        (["A", "A"], 0.5),
        (["TIE", "B"], 0.5),
        (["hm", "B"], 0.5),
    ],
)
async def test_a_pair_is_won_in_both_orders_only(
    model: PartModel, current: Current, answers: list[str], win: float
) -> None:
    asked: list[str] = []
    current.app = judge(list(answers), asked)
    verdict = await CodeJudge(model, Prompts()).compare(EXAMPLE, "first = 1", "second = 2")
    assert verdict.win == win
    assert win_rate([verdict, verdict]) == win
    assert asked[0].index("first = 1") < asked[0].index("second = 2")
    assert asked[1].index("second = 2") < asked[1].index("first = 1")
    assert [exchange.purpose for exchange in verdict.exchanges] == ["judge"] * 2


@pytest.mark.skipif(find_chromium() is None, reason="there is no Chromium")
async def test_pages_are_judged_by_their_pictures(model: PartModel, current: Current) -> None:
    asked: list[str] = []
    current.app = judge(["A", "B"], asked)
    example = FrontendExample("x", "A page.", Layout(header="red").page_text())
    async with Renderer(VIEWPORT, seconds=100) as renderer:
        verdict = await PictureJudge(model, Prompts(), renderer).compare(
            example, Layout().page_text(), ""
        )
    assert verdict.win == 1
    assert [text.count("data:image/png") for text in asked] == [3, 3]
    assert "base64" not in json.dumps(verdict.exchanges[0].prompt)


def test_no_verdicts_have_no_mean() -> None:
    with pytest.raises(ValueError, match="no verdict"):
        win_rate([])
