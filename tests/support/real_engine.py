"""The real local engine for tests marked `model`: installed under the default home, started once."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memserver.local.engine.install import install_engine
from memserver.local.engine.paths import BASE_NAME, MODEL_NAME
from memserver.local.engine.process import LocalEngine
from memserver.settings import Settings

START_SECONDS = 300


def engine_home() -> Path:
    """The default MEMSERVER_HOME, with the engine installed in it."""
    home = Settings().home
    install_engine(home, say=print)
    return home


@contextmanager
def running_engine(
    *, context_window: int = 8192, native_tools: bool = False, adapters: bool = False
) -> Iterator[LocalEngine]:
    """A started engine, with the model that adapters are for where it takes some; callers await `wait_until_ready(within=START_SECONDS)` before they use it."""
    engine = LocalEngine(
        engine_home(),
        model=BASE_NAME if adapters else MODEL_NAME,
        context_window=context_window,
        native_tools=native_tools,
        adapters=adapters,
    )
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()
