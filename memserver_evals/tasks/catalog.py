"""The tasks of `memserver eval`, by name. Nothing here loads data."""

from memserver_evals.tasks import (
    colbench,
    locomo,
    longmemeval,
    msc,
    nested_kv,
    nq,
    opener,
    retrieval,
)
from memserver_evals.tasks.registry import TaskEntry

TASKS: dict[str, TaskEntry] = {
    entry.name: entry
    for entry in (
        msc.ENTRY,
        opener.ENTRY,
        nq.ENTRY,
        nested_kv.ENTRY,
        locomo.ENTRY,
        longmemeval.ENTRY,
        retrieval.ENTRY,
        colbench.BACKEND,
        colbench.FRONTEND,
    )
}
