"""The server that policies are sampled from: started, waited for, and gone afterwards. A small one stands in."""

import os
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from memserver.errors import SetupError
from sweet_rl.recipe import Recipe, SamplingPart
from sweet_rl.resumable import Deadline, OutOfTime
from sweet_rl.sampling.sources import SamplerName, SamplingOptions
from sweet_rl.sampling.vllm_server import ServerOptions, VllmServer, vllm_command

STAND_IN = """
import http.server, json, os, sys
print("options:", json.dumps(sys.argv[1:]), flush=True)
print("adapters may be loaded:", os.environ["VLLM_ALLOW_RUNTIME_LORA_UPDATING"], flush=True)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
port = int(sys.argv[sys.argv.index("--port") + 1])
print("gpu:", os.environ.get("CUDA_VISIBLE_DEVICES"), flush=True)
print("pid:", os.getpid(), flush=True)
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def command(tmp_path: Path, script: str) -> tuple[str, ...]:
    path = tmp_path / "server.py"
    path.write_text(script, encoding="utf-8")
    return (sys.executable, str(path))


def test_it_starts_when_its_address_is_asked_for_and_ends_with_the_block(tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    options = ServerOptions(command(tmp_path, STAND_IN), more=("--enforce-eager",))
    with VllmServer(tmp_path / "base", log, options) as server:
        assert not log.exists()
        address = server.address()
        assert server.address() == address
        text = log.read_text(encoding="utf-8")
        for told in ("--enable-lora", "--enforce-eager", "adapters may be loaded: 1", "base"):
            assert told in text
        pid = int(text.rpartition("pid: ")[2])
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_several_share_the_gpus_and_are_told_of_once_all_are_ready(tmp_path: Path) -> None:
    recipe = Recipe(name="small", base="none", sampling=SamplingPart(servers=3))
    told = " ".join(command(tmp_path, STAND_IN))
    wishes = SamplingOptions(SamplerName.VLLM, told, (), "base", gpus=("2", "5"))
    with ExitStack() as stack:
        source = wishes.source(recipe, tmp_path, tmp_path / "run", Deadline(), stack)
        assert source.addresses() is None
        async with source.open(None):
            addresses = source.addresses()
        assert addresses is not None
        assert len(set(addresses)) == 3
    logs = [(tmp_path / "run" / f"vllm-{number}.log").read_text() for number in range(3)]
    assert [log.partition("gpu: ")[2][0] for log in logs] == ["2", "5", "2"]


def test_one_that_ends_while_it_starts_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    options = ServerOptions(command(tmp_path, "print('no GPU here')\nraise SystemExit(2)"))
    with (
        VllmServer(tmp_path, tmp_path / "vllm.log", options) as server,
        pytest.raises(SetupError, match="no GPU here"),
    ):
        server.address()


def test_one_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    slow = "import time\nwhile True: time.sleep(1)"
    options = ServerOptions(command(tmp_path, slow), start_seconds=0.01)
    with (
        VllmServer(tmp_path, tmp_path / "vllm.log", options) as server,
        pytest.raises(SetupError, match="isn't ready"),
    ):
        server.address()


def test_one_that_is_not_ready_when_the_time_is_over_is_not_waited_for(tmp_path: Path) -> None:
    slow = "import time\nwhile True: time.sleep(1)"
    with VllmServer(
        tmp_path, tmp_path / "vllm.log", ServerOptions(command(tmp_path, slow))
    ) as server:
        server.begin()
        with pytest.raises(OutOfTime, match="still starting"):
            server.address(Deadline.after(0))


def test_its_command_may_have_an_environment_of_its_own() -> None:
    told = "env PYTHONPATH=/site python3 -m vllm.entrypoints.openai.api_server"
    assert vllm_command(told) == tuple(told.split())
