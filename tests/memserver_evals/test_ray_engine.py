"""A run on a local Ray cluster has the results of one without."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from memserver.testing.scripted_rules import search_then_echo
from tests.memserver_evals.support import endpoints, evaluate
from tests.support.nightly import NIGHTLY
from tests.support.server import OneDatabase

SAME = ("played.jsonl", "examples.jsonl", "results.json", "manifest.json")


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.filterwarnings("default")
@pytest.mark.skipif(not NIGHTLY, reason="takes most of a minute: make nightly")
@pytest.mark.skipif(find_spec("ray") is None, reason="the extra ray is not installed")
def test_a_ray_cluster_gives_the_same_results(
    database: OneDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("nested-kv", "--system", "memserver", "--system", "full", "--set", "each=2")
    with endpoints(search_then_echo, monkeypatch, tmp_path, summary="None."):
        for engine in ("local", "ray"):
            done = evaluate(
                *asked,
                *("--set", "pairs=6", "--engine", engine, "--out", str(tmp_path / engine)),
                database=database,
            )
            assert done.error is None, done.output
    for name in SAME:
        assert (tmp_path / "ray" / name).read_bytes() == (tmp_path / "local" / name).read_bytes()


@pytest.mark.skipif(find_spec("ray") is not None, reason="the extra ray is installed")
def test_without_the_package_it_is_said_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with endpoints(search_then_echo, monkeypatch, tmp_path, summary="None."):
        done = evaluate(
            *("nested-kv", "--system", "full", "--set", "each=1", "--set", "pairs=6"),
            *("--engine", "ray", "--out", str(tmp_path / "run")),
        )
    assert "pip install '.[ray]'" in str(getattr(done.error, "hint", ""))
