"""Runs the examples of a document, in order, against a server on a real socket with a scripted model.

The server runs in this process, which has its modules: a process of its own would take most of a page's time.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from memserver.settings import Settings
from memserver.testing.hashing_embedder import HashingEmbedder
from memserver.testing.scripted_rules import RULES
from memserver.testing.scripted_server import create_scripted_app
from memserver.wiring.services import running_services
from tests.support.adapters import make_adapter
from tests.support.apps import application
from tests.support.doc_blocks import REPOSITORY, Block
from tests.support.http_app import serving
from tests.support.server import OneDatabase
from tests.support.servers import plain_environment, settings_for

DOCUMENTED_PORT = "8283"
SECONDS = 60

PYTHON_SIDE = """
import contextlib, io, json, sys, traceback
namespace = {"__name__": "__main__"}
for line in sys.stdin:
    block = json.loads(line)
    printed, failed = io.StringIO(), False
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            exec(compile(block["text"], block["place"], "exec"), namespace)
        except BaseException:
            failed = True
            traceback.print_exc()
    print(json.dumps([failed, printed.getvalue()]), flush=True)
"""


@dataclass
class Reader:
    """Somebody who types a document's examples: one shell's variables, one Python."""

    folder: Path
    port: int
    environment: dict[str, str]
    python: "subprocess.Popen[str]"

    def run(self, block: Block) -> str:
        """What the block prints; an AssertionError if it fails."""
        text = self.here(block.text)
        failed, printed = (
            self._run_bash(text) if block.language == "bash" else self._run_python(block, text)
        )
        assert not failed, f"{block.place} failed:\n{text}\n{printed}"
        return printed

    def here(self, text: str) -> str:
        """A text of the document with this server's port."""
        return text.replace(DOCUMENTED_PORT, str(self.port))

    def _run_bash(self, text: str) -> tuple[bool, str]:
        kept = self.folder / "variables"
        kept.touch()
        whole = f"source {kept}\nset -a\n{text}\nexport -p > {kept}\n"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", whole],
            cwd=self.folder,
            env=self.environment,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=SECONDS,
        )
        failed = done.returncode != 0
        return failed, done.stdout + (done.stderr if failed else "")

    def _run_python(self, block: Block, text: str) -> tuple[bool, str]:
        assert self.python.stdin is not None
        assert self.python.stdout is not None
        # Empty lines, so that a traceback counts the document's lines.
        asked = {"text": "\n" * (block.line - 1) + text, "place": block.place}
        self.python.stdin.write(json.dumps(asked) + "\n")
        self.python.stdin.flush()
        failed, printed = json.loads(self.python.stdout.readline())
        return failed, printed


@contextmanager
def reading(folder: Path, database: OneDatabase) -> Iterator[Reader]:
    """A reader with a server: an empty database, a scripted model, and no embedding model to load."""
    remember = create_scripted_app(RULES["remember"])
    with serving(_embeddings()) as embedder, serving(remember) as model:
        settings = settings_for(
            model,
            llm_model="scripted",
            home=folder / "home",
            database_url=database.owner,
            database_app_url=database.app,
            embedding_base_url=f"{embedder}/v1",
        )
        options = Settings(**{"_env_file": None, **settings})
        with (
            application(running_services(options), options) as app,
            serving(app, lifespan="on") as server,
        ):
            port = int(server.rpartition(":")[2])
            yield from _with_python(folder, port, plain_environment(folder, settings))


def _with_python(folder: Path, port: int, environment: dict[str, str]) -> Iterator[Reader]:
    shutil.copytree(REPOSITORY / "prompts", folder / "prompts")
    make_adapter(folder / "adapter")
    (folder / ".venv").symlink_to(sys.prefix)
    scripts = folder / ".venv" / "bin"
    environment["PATH"] = f"{scripts}{os.pathsep}{environment['PATH']}"
    environment["COLUMNS"] = "200"
    with subprocess.Popen(
        [sys.executable, "-c", PYTHON_SIDE],
        cwd=folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ) as python:
        yield Reader(folder, port, environment, python)
        python.kill()


def _embeddings() -> Starlette:
    embedder = HashingEmbedder()

    async def embed(request: Request) -> JSONResponse:
        vectors = await embedder.embed((await request.json())["input"])
        data = [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)]
        return JSONResponse({"data": data, "model": embedder.model})

    return Starlette(routes=[Route("/v1/embeddings", embed, methods=["POST"])])
