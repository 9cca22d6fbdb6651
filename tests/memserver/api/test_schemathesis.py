"""Schemathesis asks every route for what the document allows, for what it doesn't, and for chains of both.

It finds no 5xx, no status that isn't documented, no answer that isn't as its schema says, nothing that is there before it
is made or after it is deleted, and no route that takes a request without its key. In a chain an answer's ids are used by
later requests, along links that Schemathesis infers from the document. At night it does so part by part, each with its
own seed, until `SCHEMATHESIS_CASES` were sent. One part again, with what it prints of its failures, shrunk:

    SCHEMATHESIS_SEED=7 SCHEMATHESIS_PART="--phases fuzzing --max-examples 20" \
        .venv/bin/pytest -m slow tests/memserver/api/test_schemathesis.py
"""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import chain, count, cycle
from pathlib import Path

import pytest
import uvicorn
from starlette.types import ASGIApp

from tests.memserver.api.furnished import Ids, furnish, model, names_for
from tests.memserver.api.walk import Json, operations
from tests.support.mcp_demo import HERE
from tests.support.nightly import times
from tests.support.server import OneDatabase, serving

SEED = os.environ.get("SCHEMATHESIS_SEED")
CASES = int(os.environ.get("SCHEMATHESIS_CASES", "0" if SEED else str(times(0, 100_000))))
BY_DAY = ["--phases examples,stateful --max-examples 1"]
BY_NIGHT = chain(
    ["--phases examples,coverage"],
    cycle(["--phases stateful --max-time 300", "--phases fuzzing --max-examples 20"]),
)
"""What coverage sends doesn't depend on the seed: once is enough.

Chains have a time and no number: Schemathesis ends a run of them, as passed, at the first one whose answers differ when
it sends it again, and only for a time it starts the next run.
"""
PART = os.environ.get("SCHEMATHESIS_PART")
PARTS = cycle([PART]) if PART else times(BY_DAY, BY_NIGHT)
CONFIG = Path(__file__).with_name("schemathesis.toml")
GENERATED = re.compile(r"^\s+(\d[\d,]*) generated", re.MULTILINE)


def names_by_route(document: Json, ids: Ids) -> dict[str, Ids]:
    """An agent is deleted that nothing else is deleted of."""
    names = {each.name: names_for(each, ids) for each in operations(document)}
    names["DELETE /v1/agents/{agent}"]["agent"] = ids["cancelled_agent_id"]
    return names


def write_report(folder: Path) -> Path:
    run = folder / "monday"
    run.mkdir(parents=True)
    (run / "manifest.json").write_text('{"task": "locomo"}', encoding="utf-8")
    (run / "results.json").write_text('{"systems": {}}', encoding="utf-8")
    return run


@asynccontextmanager
async def listening(app: ASGIApp) -> AsyncIterator[str]:
    """The app on a port, in this loop; its address."""
    config = uvicorn.Config(
        app, port=0, log_level="error", ws="none", lifespan="off", timeout_graceful_shutdown=0
    )
    listener = config.bind_socket()
    server = uvicorn.Server(config)
    serving_it = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving_it
        listener.close()


async def send_part(url: str, things: Path, seed: int, part: str) -> tuple[int, int | None]:
    """Send a part's cases; how many there were, and how Schemathesis ended."""
    log = things.with_name(f"seed_{seed}.txt")
    with log.open("wb") as output:
        run = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIG)),
            *("run", f"{url}/openapi.json"),
            *(*part.split(), "--continue-on-failure", "--seed", str(seed), "--no-color"),
            *("--request-timeout", "120", "--output-sanitize", "false"),
            stdout=output,
            stderr=output,
            cwd=things.parent,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), *sys.path])),
                "SCHEMATHESIS_HOOKS": "tests.memserver.api.schemathesis_hooks",
                "THINGS": str(things),
            },
        )
        await run.wait()
    text = log.read_text(encoding="utf-8")
    sys.stdout.write(text)
    found = GENERATED.search(text)
    assert found is not None, text
    return int(found[1].replace(",", "")), run.returncode


@pytest.mark.slow
@pytest.mark.timeout(times(600, 12 * 3600))
async def test_every_route_answers_as_it_is_documented(
    database: OneDatabase, mcp_url: str, tmp_path: Path
) -> None:
    sent, failed = 0, []
    report = write_report(tmp_path / "results")
    settings = {"tool_networks": HERE, "results_dir": report.parent, "rate_limit": 0}
    async with (
        serving(database, model(), jobs_at_once=1, **settings) as server,
        listening(server.app) as url,
    ):
        await server.operate()
        document = (await server.http.get("/openapi.json")).json()
        for seed, part in zip(count(int(SEED or 1)), PARTS, strict=False):
            things = {}
            for use in ("deleted", "used"):
                headers, ids = await furnish(server, f"{use}-{seed}", mcp_url, run_jobs=False)
                things[use] = {"headers": headers, "ids": names_by_route(document, ids)}
            things["operator"] = {
                "headers": {"Authorization": server.http.headers["Authorization"]},
                "ids": names_by_route(document, {**ids, "name": report.name}),
            }
            file = tmp_path / "things.json"
            file.write_text(json.dumps(things), encoding="utf-8")
            cases, ended = await send_part(url, file, seed, part)
            sent += cases
            failed += [seed] if ended else []
            sys.stdout.write(f"Seed {seed}: {cases} by {part}, {sent} so far; ended: {ended}.\n")
            sys.stdout.flush()
            if sent >= CASES:
                break
    assert not failed, f"of the seeds of {sent} cases"
