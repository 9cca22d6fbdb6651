"""The tasks of `memserver eval`, by name: ours, and those that packages bring. Nothing here loads data.

Each entry point of the group `memserver.tasks` is a task, a `TaskEntry` by its name:

    [project.entry-points."memserver.tasks"]
    riddles = "riddles:ENTRY"

One that can't be imported is listed with the reason, and disturbs no other; a name of ours stays ours.
"""

from importlib.metadata import EntryPoint, entry_points

from memserver.errors import SetupError
from memserver.foreign_code import outcome_of_import
from memserver_evals.tasks import (
    colbench,
    evicted,
    locomo,
    longmemeval,
    msc,
    nested_kv,
    nq,
    opener,
    own,
    retrieval,
)
from memserver_evals.tasks.registry import TaskEntry, TaskOptions

GROUP = "memserver.tasks"


def _of_package(point: EntryPoint) -> TaskEntry:
    found, error = outcome_of_import(point.load)
    why = f"{type(error).__name__}: {error}" if error else f"{point.value} is no TaskEntry"
    if isinstance(found, TaskEntry):
        if found.name == point.name:
            return found
        why = f"its entry is named {found.name!r}"

    def refuse(_: TaskOptions) -> own.OwnTask:
        raise SetupError(
            f"The task {point.name} of {point.value} can't be used: {why}.",
            hint="Install what it needs, or remove the package that brings it.",
        ) from error

    return TaskEntry(point.name, f"can't be used. {why}", refuse)


TASKS: dict[str, TaskEntry] = {
    **{point.name: _of_package(point) for point in entry_points(group=GROUP)},
    **{
        entry.name: entry
        for entry in (
            own.ENTRY,
            msc.ENTRY,
            opener.ENTRY,
            nq.ENTRY,
            nested_kv.ENTRY,
            evicted.ENTRY,
            locomo.ENTRY,
            longmemeval.ENTRY,
            retrieval.ENTRY,
            colbench.BACKEND,
            colbench.FRONTEND,
        )
    },
}
