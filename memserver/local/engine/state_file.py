"""How the local engine of a running `memserver serve` does, reported to the server's workers by a file."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from memserver.local.engine.process import EnginePhase, EngineState


@dataclass(frozen=True, slots=True)
class StateFile:
    """The file of one server; no two servers have the same."""

    path: Path

    def write(self, state: EngineState, since: float) -> None:
        """Report a state, and when (in seconds of the epoch) the engine was started."""
        unfinished = self.path.with_suffix(".unfinished")
        text = json.dumps({"phase": state.phase, "detail": state.detail, "since": since})
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(self.path)

    def read(self) -> EngineState:
        """What was reported last; a loading engine's detail says for how long. Stopped if nothing was."""
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return EngineState(EnginePhase.STOPPED)
        state = EngineState(EnginePhase(found["phase"]), found["detail"])
        if state.phase is not EnginePhase.LOADING:
            return state
        return EngineState(state.phase, f"{state.detail}, {time.time() - found['since']:.0f} s")


@contextmanager
def state_file(folder: Path) -> Iterator[StateFile]:
    """A file of this process, there while the block runs."""
    file = StateFile(folder / f"state-{os.getpid()}.json")
    try:
        yield file
    finally:
        file.path.unlink(missing_ok=True)
