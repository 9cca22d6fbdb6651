"""The folder of a run: what is done, with what, and how long it took."""

import fcntl
import json
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import memserver
from memserver.errors import Conflict, InvalidInput
from memserver.messages import JsonObject
from memserver_evals.runs.run_folder import locked, write_whole
from sweet_rl.runs.units import Unit

DONE, SPENT = "done.json", "spent.json"
PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets")


@dataclass(frozen=True)
class RunState:
    out: Path

    def figures(self, unit: Unit) -> JsonObject | None:
        """What came of a unit, or None where it isn't done. Raises Conflict if it was done with other settings."""
        done = self._read(unit, DONE)
        if done is None:
            return None
        _check_same(done, unit, f"{unit.folder(self.out)} was done")
        return dict(done["figures"])

    def is_outdated(self, unit: Unit) -> bool:
        found = self._read(unit, DONE) or self._read(unit, SPENT)
        return found is not None and found["digest"] != unit.digest

    @contextmanager
    def working_on(self, unit: Unit) -> Iterator[Path]:
        """The unit's folder, this process's alone; the time that is spent in it is kept."""
        folder = unit.folder(self.out)
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder):
            spent = self._read(unit, SPENT) or {**_identity(unit), "seconds": 0.0}
            _check_same(spent, unit, f"{folder} was begun")
            _write(folder / SPENT, spent)
            start = time.monotonic()
            try:
                yield folder
            finally:
                seconds = spent["seconds"] + time.monotonic() - start
                _write(folder / SPENT, spent | {"seconds": round(seconds, 2)})

    def finish(self, unit: Unit, figures: JsonObject) -> None:
        done = {
            **_identity(unit),
            "stage": unit.stage,
            "seed": unit.seed,
            "part": unit.part,
            "needs": {role: needed.path for role, needed in unit.needs.items()},
            "figures": figures,
            "seconds": self.seconds(unit),
            "ended": _now(),
            "versions": versions(),
        }
        _write(unit.folder(self.out) / DONE, done)

    def seconds(self, unit: Unit) -> float:
        return float((self._read(unit, SPENT) or {"seconds": 0.0})["seconds"])

    def forget(self, unit: Unit) -> None:
        """Move what was done of it out of the way: into a folder beside, that nothing reads."""
        folder = unit.folder(self.out)
        if folder.exists():
            stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")
            old = self.out / "replaced" / f"{unit.path.replace('/', '-')}-{stamp}"
            old.parent.mkdir(parents=True, exist_ok=True)
            folder.rename(old)

    def _read(self, unit: Unit, name: str) -> JsonObject | None:
        path = unit.folder(self.out) / name
        try:
            return dict(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise InvalidInput(f"{path} is damaged: {error}") from error


def versions() -> JsonObject:
    """Of all that a figure may depend on; what isn't installed is left out."""
    found = {"memserver": memserver.__version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def note_call(out: Path, recipe: JsonObject, stage: str) -> None:
    """Write down what a call runs: run.json is the recipe as it is now, calls.jsonl has a line for each."""
    out.mkdir(parents=True, exist_ok=True)
    known = {"recipe": recipe, "versions": versions()}
    with (out / "calls.jsonl").open("a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # several processes may begin at the same moment
        _write(out / "run.json", known | {"machine": platform.platform()})
        file.write(json.dumps({"at": _now(), "stage": stage, **known}, ensure_ascii=False) + "\n")


def _identity(unit: Unit) -> JsonObject:
    return {
        "digest": unit.digest,
        "settings": unit.settings,
        "needs_digests": {role: needed.digest for role, needed in unit.needs.items()},
    }


def _check_same(old: JsonObject, unit: Unit, what: str) -> None:
    """Raise Conflict, with what differs, unless the unit has the settings and needs that it had."""
    if old["digest"] == unit.digest:
        return
    changes = _differing("", old["settings"], unit.settings)
    changes += [
        f"{role} ({needed.path}) is another one"
        for role, needed in unit.needs.items()
        if old["needs_digests"].get(role) != needed.digest
    ]
    raise Conflict(
        f"{what} with other settings: {'; '.join(changes) or 'what it needs is another one'}.",
        hint="Resume with the same recipe, name another folder, or do it again with --redo.",
    )


def _differing(place: str, old: Any, new: Any) -> list[str]:  # noqa: ANN401 - JSON
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            change
            for name in sorted(old.keys() | new.keys())
            for change in _differing(f"{place}.{name}".lstrip("."), old.get(name), new.get(name))
        ]
    return [] if old == new else [f"{place} was {json.dumps(old)}, now {json.dumps(new)}"]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _write(path: Path, value: JsonObject) -> None:
    write_whole(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")
