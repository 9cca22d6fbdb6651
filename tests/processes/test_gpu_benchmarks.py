"""The GPU benchmarks from end to end, with a scripted model in vLLM's place."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu, gpu_engines, gpu_limits, prefix_cache
from tests.support.nightly import NIGHTLY
from tests.support.processes import Endpoint

pytestmark = pytest.mark.slow


def last_line(output: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


@pytest.mark.skipif(not NIGHTLY, reason="takes half a minute: make nightly")
def test_both_sides_are_measured_with_the_same_requests(
    folder: Path, echo: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    bodies, out = folder / "bodies.jsonl", folder / "out.json"
    here = ["--vllm-url", echo.url, "--clients", "2", "--json"]
    sizes = ["--agents", "1,3", "--turns", "2", "--context", "400"]
    few = ["--least-turns", "2", "--characters", "600"]  # room for the echo
    files = ["--save-bodies", str(bodies), "--out", str(out)]
    assert gpu.main([*here, *sizes, *few, *files, "--workers", "1"]) == 0
    figures = last_line(capsys.readouterr().out)
    assert figures == json.loads(out.read_text())
    rows = figures["rows"]
    assert [(row["agents"], row["side"]) for row in rows] == [
        (1, "memserver"),
        (1, "direct"),
        (3, "memserver"),
        (3, "direct"),
    ]
    assert [(row["turns"], row["errors"]) for row in rows] == [(4, 0), (4, 0), (12, 0), (12, 0)]
    assert [row["steps"] for row in rows] == [1, 1, 1, 1]
    for ours, direct in (rows[:2], rows[2:]):
        assert ours["ratio"] > 0
        assert ours["prompt_tokens"] == direct["prompt_tokens"]
        assert ours["output_tokens"] == direct["output_tokens"]
        assert ours["first_character_p50_ms"] > 0
        assert ours["cpu_cores"].keys() >= {"memserver", "postgres"}

    script = folder / "start.sh"
    server = f"{sys.executable} -m memserver.testing.scripted_server"
    script.write_text(f'exec {server} --port "$PORT"\n', encoding="utf-8")
    here = [
        "--vllm-command",
        f"bash {script}",
        "--variants",
        "api1,api4-free,engines2",
        "--clients",
        "2",
        "--json",
    ]
    sizes = ["--agents", "1,2", "--turns", "2", "--bodies", str(bodies)]
    assert gpu_limits.main([*here, *sizes]) == 0
    rows = last_line(capsys.readouterr().out)["rows"]
    loads = [(1, 2, 0), (2, 2, 0), (2, 1, 0), (1, 1, 0)]
    assert [(row["variant"], row["agents"], row["clients"], row["errors"]) for row in rows] == [
        (variant, *load) for variant in ("api1", "api4-free", "engines2") for load in loads
    ]


@pytest.mark.skipif(not NIGHTLY, reason="takes a quarter of a minute: make nightly")
def test_the_orders_of_the_prompt_are_compared_over_two_evictions(
    echo: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    here = ["--vllm-url", echo.url, "--clients", "1", "--workers", "1", "--json"]
    prefix_cache.main([*here, "--conversations", "1", "--words", "20"])
    figures = last_line(capsys.readouterr().out)
    assert [row["evictions_of_each_run"] for row in figures["rows"]] == [[2, 2], [2, 2]]
    assert [(row["errors"], row["steps"]) for row in figures["rows"]] == [(0, 1), (0, 1)]
    reset = [complaint for complaint in figures["complaints"] if "reset" in complaint]
    assert figures["complaints"] == reset
    assert len(reset) == 2


@pytest.mark.skipif(not NIGHTLY, reason="takes a quarter of a minute: make nightly")
def test_engines_are_measured_with_each_agent_pinned_to_one_and_without(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = folder / "start.sh"
    server = f"{sys.executable} -m memserver.testing.scripted_server"
    script.write_text(f'exec {server} --port "$PORT"\n', encoding="utf-8")
    here = ["--vllm-command", f"bash {script}", "--bare", "--engines", "2", "--json"]
    sizes = ["--agents", "2", "--turns", "2", "--context", "400", "--least-turns", "4"]
    few = ["--characters", "600", "--clients", "1", "--workers", "1"]  # room for the echo
    assert gpu_engines.main([*here, *sizes, *few]) == 0
    figures = last_line(capsys.readouterr().out)
    rows = figures["rows"]
    assert figures["engines"] == 2
    assert [(row["side"], row["turns"], row["errors"]) for row in rows] == [
        ("pinned", 8, 0),
        ("unpinned", 8, 0),
    ]
    assert rows[0]["ratio"] > 0
