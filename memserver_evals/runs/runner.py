"""A run: a task, a fixed sample of its examples, the systems; played, judged, tabulated, reported."""

import hashlib
from collections.abc import Sequence
from contextlib import ExitStack, aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any

from rich.console import Console

from memserver_evals.progress import bar, bars
from memserver_evals.runs.engines import Engine
from memserver_evals.runs.records import Job, PlayedRecord
from memserver_evals.runs.results import Row, Table, score_all, tabulate, write_results
from memserver_evals.runs.run_folder import RunFolder
from memserver_evals.runs.verdicts import Bench, judge_all, open_verdicts
from memserver_evals.task import Claim, Task


@dataclass(frozen=True, slots=True)
class RunOutcome:
    table: Table
    rows: tuple[Row, ...]
    records: tuple[PlayedRecord, ...]


def sample(task: Task[Any], limit: int | None, seed: int) -> list[str]:
    """Which examples are played, in the task's order: of each group its share, as far as so few can have it.

    A larger sample with the same seed holds the smaller one, so that a run can grow.
    """
    examples = task.examples()
    ids = [each.id for each in examples]
    if limit is None or limit >= len(ids):
        return ids
    strata: dict[str, list[tuple[bytes, str]]] = {}
    for each in examples:
        groups = {name: value for name, value in task.groups(each).items() if name != "cluster"}
        drawn = hashlib.sha256(f"{seed}\0{each.id}".encode()).digest()
        strata.setdefault(repr(groups), []).append((drawn, each.id))
    ranked = [
        ((rank + 0.5) / len(stratum), drawn, id_)
        for stratum in strata.values()
        for rank, (drawn, id_) in enumerate(sorted(stratum))
    ]
    kept = {id_ for *_, id_ in sorted(ranked)[:limit]}
    return [each for each in ids if each in kept]


def jobs_of(systems: Sequence[str], examples: Sequence[str]) -> list[Job]:
    """Every example through every system, in the order of the run's files."""
    return [Job(system, example) for system in systems for example in examples]


async def play_all(
    folder: RunFolder, jobs: Sequence[Job], engine: Engine, console: Console
) -> list[PlayedRecord]:
    """Play what is not played yet, keep each as it ends; the records in the run's order.

    Raises MemserverError: something stays down. What was played is kept, and the run can be resumed.
    """
    left = [job for job in jobs if job not in folder.done]
    with bars(console), bar("playing", len(jobs), len(jobs) - len(left)) as advance:
        async with aclosing(engine.play(left)) as played:
            async for done in played:
                await folder.add(done.record, done.seconds)
                advance(1)
    return folder.put_in_order(jobs)


async def judge_and_report(
    task: Task[Any],
    folder: RunFolder,
    records: Sequence[PlayedRecord],
    benches: Sequence[Bench],
    console: Console,
    *,
    at_once: int = 4,
) -> RunOutcome:
    """Judge the answers, and write the tables. Raises MemserverError where a judge can't be asked."""
    examples = {example.id: example for example in task.examples()}
    claims: dict[Job, Claim] = {}
    for record in records:
        claim = task.claim(examples[record.job.example], record.played)
        if claim is not None:
            claims[record.job] = claim
    jobs = [record.job for record in records]
    with ExitStack() as stack:
        verdicts = {}
        for bench in benches if claims else ():
            file = stack.enter_context(open_verdicts(folder.path, bench))
            what = f"judge {bench.judge.name}"
            with bars(console), bar(what, len(claims), len(file.given)) as advance:
                await judge_all(file, claims, at_once, partial(advance, 1))
            file.put_in_order(jobs)
            verdicts[bench.column] = file.given
    rows = score_all(task, records, verdicts)
    table = tabulate(task, rows)
    write_results(folder.path, folder.manifest, table, rows)
    return RunOutcome(table, tuple(rows), tuple(records))
