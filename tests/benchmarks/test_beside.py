import sys
from pathlib import Path

import pytest

from benchmarks import beside
from tests.support.nightly import NIGHTLY


@pytest.mark.slow
@pytest.mark.skipif(not NIGHTLY, reason="takes most of a minute: make nightly")
def test_a_checkout_is_compared_with_another_one_in_one_run():
    checkout = Path(sys.prefix).parent  # whose .venv runs this test

    pair = beside.compare(checkout, range(2), seed=0)

    assert pair.rounds == 2
    assert pair.ours_cpu_ms > 0
    assert pair.theirs_cpu_ms > 0
    assert 0 < pair.cpu_ratio_low <= pair.cpu_ratio <= pair.cpu_ratio_high
    assert pair.cpu_ratio == pytest.approx(pair.ours_cpu_ms / pair.theirs_cpu_ms, rel=0.05)
