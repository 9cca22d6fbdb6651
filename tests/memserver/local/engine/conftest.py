import time
from collections.abc import Iterator

import pytest

from memserver.local.engine.process import EnginePhase, LocalEngine
from tests.support.real_engine import START_SECONDS, running_engine


@pytest.fixture(scope="session")
def real_engine() -> Iterator[LocalEngine]:
    """The real engine, ready, shared by all tests of the session."""
    with running_engine() as engine:
        deadline = time.monotonic() + START_SECONDS
        while (state := engine.state()).phase is EnginePhase.LOADING:
            assert time.monotonic() < deadline, "still loading"
            time.sleep(0.25)
        assert state.phase is EnginePhase.READY, state.detail
        yield engine
