"""The commands on runs that have been played: judge and report one, compare two, print tables."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer

from memserver.cli.console import console, print_table
from memserver.errors import InvalidInput, SetupError
from memserver.messages import JsonObject
from memserver_evals.cli.options import (
    DataOption,
    JsonOption,
    JudgeKeyOption,
    JudgeModelOption,
    JudgeOptions,
    JudgeUrlOption,
    task_of_run,
)
from memserver_evals.cli.terminal import print_scores
from memserver_evals.judging.string import StringJudge
from memserver_evals.report.compare import compare
from memserver_evals.report.markdown import tables
from memserver_evals.report.page import gold_answers, write_report
from memserver_evals.report.plots import draw_runs
from memserver_evals.runs.records import Record
from memserver_evals.runs.run_folder import RunFolder, open_run, read_manifest
from memserver_evals.runs.runner import Outcome, jobs_of, judge_and_report
from memserver_evals.runs.verdicts import Bench
from memserver_evals.task import Task


def compare_runs(
    a: Annotated[str, typer.Argument(help="A run's folder; RUN:SYSTEM names one of its systems.")],
    b: Annotated[str, typer.Argument(help="The other one.")],
    score: Annotated[str | None, typer.Option(help="Which score; left out: the main one.")] = None,
    as_json: JsonOption = False,
) -> None:
    """How B differs from A, example by example, on the examples that both have."""
    found = compare(a, b, score)
    if as_json:
        shown = {"a": found.a.title, "b": found.b.title, "score": found.score}
        differences = {name: asdict(each) for name, each in found.differences.items()}
        print(json.dumps({**shown, "shared": found.shared, "differences": differences}))
        return
    rows = [
        (
            name,
            str(each.estimate.count),
            f"{each.a:.3f}",
            f"{each.b:.3f}",
            each.estimate.shown(sign=True),
            str(each.better),
            str(each.worse),
            str(each.equal),
            f"{each.p:.4f}",
        )
        for name, each in found.differences.items()
    ]
    console.print(f"A: {found.a.title}\nB: {found.b.title}\n{found.score.replace('_', ' ')}:")
    print_table(("examples", "n", "A", "B", "B - A [95 %]", "better", "worse", "equal", "p"), rows)
    if found.only_a or found.only_b:
        console.print(f"Left out: {found.only_a} examples that only A has, {found.only_b} only B.")


def report_again(
    run: Annotated[Path, typer.Argument(help="The folder of a run that has ended.")],
    data: DataOption = None,
    judge_url: JudgeUrlOption = None,
    judge_model: JudgeModelOption = None,
    judge_key: JudgeKeyOption = None,
) -> None:
    """Score, judge and report a run again, without playing anything: after a better scorer, or by a new judge."""
    manifest = read_manifest(run)
    task = task_of_run(manifest, data)
    if task.data_hash != manifest["data_hash"]:
        raise InvalidInput(
            "The data is not what the run was played with.", hint="Name it by --data."
        )
    jobs = jobs_of(manifest["systems"], manifest["examples"])
    with open_run(run, manifest) as folder:
        missing = [job for job in jobs if job not in folder.done]
        if missing:
            raise InvalidInput(
                f"{len(missing)} examples are not played yet.", hint="Resume the run."
            )
        records = [folder.done[job] for job in jobs]
        judge = JudgeOptions(judge_url, judge_model, judge_key)
        outcome = anyio.run(judged, task, folder, records, judge, 4)
        report(run, manifest, task, outcome)


def print_tables(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs that have ended.")],
) -> None:
    """The tables of runs as Markdown, for a document."""
    for run in runs:
        manifest = read_manifest(run)
        print(f"**{manifest['task']}**, {manifest['model'].get('name') or 'no model'}\n")
        print(tables(run))


def draw_picture(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs that have ended.")],
    out: Annotated[Path, typer.Option(help="The PNG to write.")] = Path("scores.png"),
) -> None:
    """Draw the main scores of several runs in one picture: a bar for each system of each."""
    out.write_bytes(draw_runs(runs))
    console.print(f"{out}")


async def judged(
    task: Task[Any],
    folder: RunFolder,
    records: Sequence[Record],
    options: JudgeOptions,
    at_once: int,
) -> Outcome:
    """Judge what was played, by the string judge and by the one that was named; write the tables.

    Raises InvalidInput: the judge has no model; MemserverError: it can't be asked.
    """
    async with options.opened() as judge:
        benches = [Bench(StringJudge())]
        if judge is not None:
            benches.append(Bench(judge, identity=judge.identity))
        return await judge_and_report(task, folder, records, benches, console, at_once=at_once)


def report(out: Path, manifest: JsonObject, task: Task[Any], outcome: Outcome) -> None:
    """Write the report, where matplotlib is there, and print the scores."""
    gold = gold_answers(task.examples())
    try:
        page = write_report(out, manifest, outcome, gold)
    except SetupError as error:  # without matplotlib there are the numbers
        page = None
        console.print(f"No report: {error.message} {error.hint}")
    print_scores(outcome.table, manifest.get("windows", {}))
    console.print(f"{page or out}")
