"""The tasks of `memserver eval`, by name. Nothing here loads data."""

from memserver.evals import colbench, nested_kv
from memserver.evals.registry import TaskEntry

TASKS: dict[str, TaskEntry] = {
    entry.name: entry for entry in (nested_kv.ENTRY, colbench.BACKEND, colbench.FRONTEND)
}
