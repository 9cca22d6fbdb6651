"""Where in the folder of a run everything is, and the arms that are compared."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from memserver.errors import InvalidInput
from sweet_rl.memory_episodes.records import Drawn, Task, read_parts
from sweet_rl.trajectories import AnyRecord, read_file

Arm = Literal["rft", "mdpo", "critic", "critic-blind", "sweet", "sweet-blind"]
ARMS: tuple[Arm, ...] = ("rft", "mdpo", "critic", "critic-blind", "sweet", "sweet-blind")
CRITIC_OF: dict[Arm, Arm] = {"sweet": "critic", "sweet-blind": "critic-blind"}
"""The critic that orders the calls that an actor learns from; a blind one never sees the hidden information."""


@dataclass(frozen=True, slots=True)
class Run:
    folder: Path

    @property
    def tasks_file(self) -> Path:
        return self.folder / "tasks.jsonl"

    def tasks(self) -> list[Task]:
        if not self.tasks_file.is_file():
            raise InvalidInput(
                f"{self.folder} has no tasks.",
                hint="Make them: python -m sweet_rl.memory_episodes tasks FOLDER",
            )
        return read_file(self.tasks_file, Task)

    def plays(self, side: str = "train") -> list[Drawn]:
        return _some(read_parts(self.folder / "plays", f"{side}*.jsonl"), "plays", "play")

    def candidates(self, seed: int) -> list[Drawn]:
        found = read_parts(self.folder / "candidates", f"seed-{seed}-*.jsonl")
        return _some(found, f"candidates of seed {seed}", "candidates")

    def executed(self) -> list[Drawn]:
        return _some(read_parts(self.folder / "oracle", "*.jsonl"), "executed calls", "oracle")

    def arm(self, arm: Arm, seed: int) -> Path:
        return self.folder / f"seed-{seed}" / arm

    def data(self, arm: Arm, seed: int) -> Path:
        return self.arm(arm, seed) / "learnt.jsonl"

    def adapter(self, arm: Arm, seed: int) -> Path:
        return self.arm(arm, seed) / "adapter"

    def read(self, path: Path, kind: type[AnyRecord]) -> list[AnyRecord]:
        if not path.is_file():
            raise InvalidInput(
                f"{path} is not there.", hint="Run `pairs` for this method and seed first."
            )
        return read_file(path, kind)


def _some(found: list[Drawn], what: str, command: str) -> list[Drawn]:
    if not found:
        raise InvalidInput(f"There are no {what} yet.", hint=f"Run `{command}` first.")
    return found
