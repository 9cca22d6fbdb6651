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
from memserver_evals.runs.run_folder import write_whole
from sweet_rl.runs.stages import Unit

DONE, SPENT = "done.json", "spent.json"
PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets")


@dataclass(frozen=True)
class RunState:
    out: Path

    def figures(self, unit: Unit) -> JsonObject | None:
        """What came of a unit, or None where it isn't done."""
        done = self._done(unit)
        if done is None:
            return None
        if done["digest"] != unit.digest:
            raise Conflict(
                f"{unit.folder(self.out)} was done with other settings: {_changes(done, unit)}.",
                hint="Go on with the same recipe, name another folder, or do it anew with --redo.",
            )
        return dict(done["figures"])

    def is_outdated(self, unit: Unit) -> bool:
        found = self._done(unit) or self._begun(unit)
        return found is not None and found["digest"] != unit.digest

    @contextmanager
    def working_on(self, unit: Unit) -> Iterator[Path]:
        """The unit's folder, this process's alone; the time that is spent in it is kept."""
        folder = unit.folder(self.out)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("wb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise Conflict(f"Another process works in {folder}.") from error
            spent = self._begun(unit) or self._begin(unit)
            if spent["digest"] != unit.digest:
                raise Conflict(
                    f"{folder} was begun with other settings: {_changes(spent, unit)}.",
                    hint="Go on with the same recipe, name another folder, or do it anew with --redo.",
                )
            start = time.monotonic()
            try:
                yield folder
            finally:
                seconds = spent["seconds"] + time.monotonic() - start
                _write(folder / SPENT, spent | {"seconds": round(seconds, 2)})

    def finish(self, unit: Unit, figures: JsonObject) -> None:
        spent = self._begun(unit) or {"seconds": 0.0}
        _write(
            unit.folder(self.out) / DONE,
            {
                "digest": unit.digest,
                "stage": unit.stage,
                "seed": unit.seed,
                "part": unit.part,
                "settings": unit.settings,
                "needs": {role: needed.path for role, needed in unit.needs.items()},
                "needs_digests": {role: needed.digest for role, needed in unit.needs.items()},
                "figures": figures,
                "seconds": spent["seconds"],
                "ended": datetime.now(UTC).isoformat(timespec="seconds"),
                "versions": versions(),
            },
        )

    def seconds(self, unit: Unit) -> float:
        begun = self._begun(unit)
        return float(begun["seconds"]) if begun else 0.0

    def forget(self, unit: Unit) -> None:
        """Move what was done of it out of the way: into a folder beside, that nothing reads."""
        folder = unit.folder(self.out)
        if folder.exists():
            stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")
            old = self.out / "replaced" / f"{unit.path.replace('/', '-')}-{stamp}"
            old.parent.mkdir(parents=True, exist_ok=True)
            folder.rename(old)

    def _done(self, unit: Unit) -> JsonObject | None:
        return _read(unit.folder(self.out) / DONE)

    def _begun(self, unit: Unit) -> JsonObject | None:
        return _read(unit.folder(self.out) / SPENT)

    def _begin(self, unit: Unit) -> JsonObject:
        begun: JsonObject = {
            "digest": unit.digest,
            "settings": unit.settings,
            "needs_digests": {role: needed.digest for role, needed in unit.needs.items()},
            "seconds": 0.0,
        }
        _write(unit.folder(self.out) / SPENT, begun)
        return begun


def versions() -> JsonObject:
    """Of all that a figure may depend on; what isn't installed is left out."""
    found = {"memserver": memserver.__version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _changes(done: JsonObject, unit: Unit) -> str:
    now = {role: needed.digest for role, needed in unit.needs.items()}
    told = _differing("", done["settings"], unit.settings)
    told += [
        f"{role} ({unit.needs[role].path}) is another one"
        for role in now
        if done["needs_digests"].get(role) != now[role]
    ]
    return "; ".join(told) or "what it needs is another one"


def _differing(place: str, old: Any, new: Any) -> list[str]:  # noqa: ANN401 - JSON
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            told
            for name in sorted(old.keys() | new.keys())
            for told in _differing(f"{place}.{name}".lstrip("."), old.get(name), new.get(name))
        ]
    return [] if old == new else [f"{place} was {json.dumps(old)}, now {json.dumps(new)}"]


def _read(path: Path) -> JsonObject | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise InvalidInput(f"{path} is damaged: {error}") from error
    return dict(found)


def _write(path: Path, value: JsonObject) -> None:
    write_whole(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def note_call(out: Path, recipe: JsonObject, stage: str) -> None:
    """Write down what a call runs: run.json is the recipe as it is now, calls.jsonl has a line for each."""
    out.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    told = versions()
    line = {"at": now, "stage": stage, "versions": told, "recipe": recipe}
    with (out / "calls.jsonl").open("a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # several processes may begin at the same moment
        _write(
            out / "run.json", {"recipe": recipe, "versions": told, "machine": platform.platform()}
        )
        file.write(json.dumps(line, ensure_ascii=False) + "\n")
