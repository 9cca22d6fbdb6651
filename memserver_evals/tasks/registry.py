"""The tasks that `memserver eval` knows, and what each needs. A task's module registers nothing by itself: it is listed here."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from typing_extensions import override

from memserver.errors import InvalidInput
from memserver_evals.task import E, Task

T = TypeVar("T", bound=str)
MaterialKind = Literal["sessions", "documents"]


@dataclass(frozen=True, slots=True)
class TaskOptions:
    data: Path | None = None  # the folder with the data (MEMSERVER_DATA or --data), or None
    seed: int = 0  # of whatever the task generates or shuffles
    # `--set key=value`, for the task's own options; an unknown key is refused by the task
    extra: Mapping[str, str] = field(default_factory=dict)

    def number(self, name: str, default: int) -> int:
        """An option that is a number from 1. Raises InvalidInput."""
        given = self.extra.get(name, str(default))
        if not given.isdecimal() or int(given) < 1:
            raise InvalidInput(f"{name} is a number from 1, not {given!r}.")
        return int(given)

    def choice(self, name: str, among: Sequence[T], default: T | None = None) -> T:
        """An option that is one of some words; left out, the default, or the first. Raises InvalidInput."""
        given = self.extra.get(name, default or among[0])
        found = next((each for each in among if each == given), None)
        if found is None:
            raise InvalidInput(f"{name} is {' or '.join(among)}, not {given!r}.")
        return found

    def data_or_generated(self) -> Path | None:
        """The data folder, or None where the task is to make its own data. Raises InvalidInput."""
        default = "file" if self.data is not None else "generated"
        if self.choice("source", ("file", "generated"), default) == "generated":
            return None
        if self.data is None:
            raise InvalidInput(
                "There is no data folder.", hint="Name one: --data, or MEMSERVER_DATA."
            )
        return self.data


@dataclass(frozen=True, slots=True)
class TaskEntry:
    name: str  # on the command line
    summary: str  # one line on what it measures
    # makes it; bad data or a bad option raises InvalidInput
    make: Callable[[TaskOptions], Task[Any]]
    # what its examples bring; a system that can't use that is not offered
    material: frozenset[MaterialKind] = frozenset({"sessions"})
    # the only ones that can play it; empty: all that can use its material
    systems: tuple[str, ...] = ()
    # files in the data folder, or what else it needs; empty where it makes its own
    needs: tuple[str, ...] = ()
    # its own options, name and one line each
    options: Mapping[str, str] = field(default_factory=dict)
    # tokens that systems may use where the command line doesn't say, and those of the system
    # full; None: all that the model has
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


class ReadTask(Task[E]):
    """A task of examples that are there from the start; a subclass says the rest."""

    def __init__(self, examples: Sequence[E], data_hash: str) -> None:
        """`data_hash`: of the data that they were read from, and of what chose them."""
        self._examples = tuple(examples)
        self._hash = data_hash

    @property
    @override
    def data_hash(self) -> str:
        return self._hash

    @override
    def examples(self) -> Sequence[E]:
        return self._examples
