"""Schemathesis asks every route for what the document allows, and for what it doesn't.

It finds no 5xx, no status that isn't documented, and no answer that isn't as its schema says. A longer run:

    SCHEMATHESIS_EXAMPLES=300 SCHEMATHESIS_SEED=7 SCHEMATHESIS_PHASES=examples,coverage,fuzzing \
        .venv/bin/pytest -m slow tests/memserver/api/test_schemathesis.py
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvicorn
from starlette.types import ASGIApp

from tests.memserver.api.furnished import furnish, model, names_for
from tests.memserver.api.walk import operations
from tests.support.mcp_demo import HERE
from tests.support.nightly import times
from tests.support.server import OneDatabase, serving

EXAMPLES = os.environ.get("SCHEMATHESIS_EXAMPLES", str(times(2, 300)))
SEED = os.environ.get("SCHEMATHESIS_SEED", "1")
PHASES = os.environ.get("SCHEMATHESIS_PHASES", "examples,fuzzing")
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
)


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


@pytest.mark.slow
@pytest.mark.timeout(7200)
async def test_every_route_answers_as_it_is_documented(
    database: OneDatabase, mcp_url: str, tmp_path: Path
) -> None:
    async with (
        serving(database, model(), tool_networks=HERE, jobs_at_once=1, rate_limit=0) as server,
        listening(server.app) as url,
    ):
        await server.operate()
        document = (await server.http.get("/openapi.json")).json()
        things = {}
        for use in ("used", "deleted"):
            headers, ids = await furnish(server, use, mcp_url, run_jobs=False)
            things[use] = {
                "headers": headers,
                "ids": {each.name: names_for(each, ids) for each in operations(document)},
            }
        file = tmp_path / "things.json"
        file.write_text(json.dumps(things), encoding="utf-8")
        log = os.open(tmp_path / "log.txt", os.O_CREAT | os.O_WRONLY)
        run = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json"),
            *("--checks", ",".join(CHECKS), "--phases", PHASES, "--continue-on-failure"),
            *("--max-examples", EXAMPLES, "--seed", SEED, "--no-color"),
            *("--request-timeout", "120"),
            *os.environ.get("SCHEMATHESIS_MORE", "").split(),
            stdout=log,
            stderr=log,
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), *sys.path])),
                "SCHEMATHESIS_HOOKS": "tests.memserver.api.schemathesis_hooks",
                "THINGS": str(file),
            },
        )
        await run.wait()
        os.close(log)
    sys.stdout.write((tmp_path / "log.txt").read_text(encoding="utf-8"))
    sys.stdout.write(f"ended with {run.returncode}")
    assert run.returncode == 0
