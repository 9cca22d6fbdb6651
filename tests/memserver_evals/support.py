"""What the tests of evaluations are written with: a scripted model and an embedder as endpoints, and the command."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from typer.testing import CliRunner

from memserver.testing.hashing_embedder import HashingEmbedder
from memserver.testing.scripted import Rule
from memserver.testing.scripted_server import create_scripted_app
from memserver_evals.cli.commands import make_commands
from tests.support.http_app import serving
from tests.support.server import OneDatabase


def embedding_app(embedded: list[str]) -> Starlette:
    """The hashing embedder as an OpenAI-compatible endpoint; `embedded` gets what it is asked for."""
    embedder = HashingEmbedder()

    async def embed(request: Request) -> Response:
        asked = await request.json()
        texts = asked["input"] if isinstance(asked["input"], list) else [asked["input"]]
        embedded.extend(texts)
        vectors = await embedder.embed(texts)
        data = [{"index": place, "embedding": each} for place, each in enumerate(vectors)]
        return JSONResponse({"data": data, "model": "hashing", "usage": {"prompt_tokens": 1}})

    async def models(_: Request) -> Response:
        return JSONResponse({"data": [{"id": "hashing", "max_model_len": 100_000}]})

    return Starlette(
        routes=[
            Route("/v1/embeddings", embed, methods=["POST"]),
            Route("/v1/models", models),
        ]
    )


@contextmanager
def endpoints(
    rule: Rule,
    monkeypatch: pytest.MonkeyPatch,
    home: Path,
    *,
    embedded: list[str] | None = None,
    **more: Any,
) -> Iterator[dict[str, str]]:
    """A scripted model and an embedder; memserver's settings point to them."""
    with ExitStack() as stack:
        model = stack.enter_context(serving(create_scripted_app(rule, **more)))
        embedder = stack.enter_context(serving(embedding_app([] if embedded is None else embedded)))
        settings = {
            "home": str(home),
            "llm_base_url": f"{model}/v1",
            "embedding_base_url": f"{embedder}/v1",
            "embedding_model": "hashing",
            "embedding_dimension": "384",
            "embedding_window": "100000",
        }
        for name, value in settings.items():
            monkeypatch.setenv(f"MEMSERVER_{name.upper()}", value)
        yield settings


@dataclass(frozen=True)
class Done:
    """What a command printed, and the error that ended it, if one did."""

    output: str
    error: BaseException | None


def evaluate(*arguments: str, database: OneDatabase | None = None) -> Done:
    """`memserver eval …`, in this process."""
    given = list(arguments)
    if database is not None:
        given += ["--database-url", database.superuser]
    result = CliRunner().invoke(make_commands(), given)
    error = result.exception
    return Done(result.output, None if isinstance(error, SystemExit) and not error.code else error)


def results(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    return found


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def means(folder: Path, score: str) -> dict[str, float]:
    systems = results(folder)["systems"]
    return {name: each["scores"][score]["mean"] for name, each in systems.items()}
