"""Whether the memory of a server's processes is flat."""

from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.soak import Sample, draw, figures, growth, soak
from tests.support.nightly import NIGHTLY


def samples(mb_per_10000: float) -> list[Sample]:
    """With noise of a megabyte."""
    return [
        Sample(turns, 150 + mb_per_10000 * turns / 10_000 + turns * 7919 % 11 / 10, 200, 30, 10)
        for turns in range(0, 100_000, 500)
    ]


def test_a_process_that_grows_is_found_in_the_noise() -> None:
    found = growth(samples(1.0))
    assert found is not None
    assert found.slope == pytest.approx(1.0, abs=0.05)
    assert found.low < found.slope < found.high
    assert not found.flat


def test_noise_alone_is_flat() -> None:
    found = growth(samples(0.0))
    assert found is not None
    assert found.flat
    assert found.low < 0 < found.high


def test_a_few_samples_say_nothing() -> None:
    assert growth(samples(1.0)[:19]) is None


@pytest.mark.skipif(not NIGHTLY, reason="takes half a minute: make nightly")
def test_every_process_of_a_server_under_load_is_sampled(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra `eval` has it")
    into = soak(1, None, Console(quiet=True), tmp_path / "samples.json")
    found = figures(into)
    assert found["turns"] > 0
    assert found["errors"] == {}
    assert set(found["processes"]) == {"main", "worker 1", "worker 2", "backend"}
    worker = found["processes"]["worker 1"]["last"]
    assert worker["pss"] > 0
    assert worker["files"] > worker["sockets"] > 0
    assert worker["tasks"] > 0
    assert found["processes"]["backend"]["last"]["count"] > 1
    draw(into, tmp_path / "soak.png")
    assert (tmp_path / "soak.png").read_bytes().startswith(b"\x89PNG")
