"""The tasks that `memserver eval` knows, and what each needs. A task's module registers nothing by itself: it is listed here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from memserver.errors import InvalidInput
from memserver_evals.task import Task

MaterialKind = Literal["sessions", "documents"]


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """What the command line gives a task.

    Attributes:
        data: the folder with the data (MEMSERVER_DATA or --data), or None.
        seed: of whatever the task generates or shuffles.
        extra: `--set key=value`, for the task's own options; an unknown key is refused by the task.
    """

    data: Path | None = None
    seed: int = 0
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskEntry:
    """One task of the list.

    Attributes:
        name: on the command line.
        summary: one line on what it measures.
        material: what its examples bring; a system that can't use that is not offered.
        systems: the only ones that can play it; empty: all that can use its material.
        needs: files in the data folder, or what else it needs; empty where it makes its own.
        options: its own options, name and one line each.
        windows: tokens that systems may use where the command line doesn't say, and those of the system full;
            None: all that the model has.
        make: makes it; bad data or a bad option raises InvalidInput.
    """

    name: str
    summary: str
    make: Callable[[TaskOptions], Task[Any]]
    material: frozenset[MaterialKind] = frozenset({"sessions"})
    systems: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    windows: tuple[int | None, int | None] = (2048, 8192)


def find_task(entries: Mapping[str, TaskEntry], name: str) -> TaskEntry:
    """The task of this name. Raises InvalidInput."""
    if name not in entries:
        known = ", ".join(sorted(entries))
        raise InvalidInput(f"There is no task {name!r}.", hint=f"There are {known}.")
    return entries[name]


def refuse_unknown(options: TaskOptions, entry: TaskEntry) -> None:
    """An option that the task doesn't have is an error. Raises InvalidInput."""
    for name in options.extra:
        if name not in entry.options:
            known = ", ".join(sorted(entry.options)) or "none"
            raise InvalidInput(
                f"The task {entry.name} has no option {name!r}.", hint=f"It has: {known}."
            )
