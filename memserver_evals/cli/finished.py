"""The commands on runs that have been played: judge and report one, compare two, print tables."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer

from memserver.cli.console import console, print_table
from memserver.cli.options import JsonOption
from memserver.errors import InvalidInput, SetupError
from memserver.messages import JsonObject
from memserver_evals.cli.options import (
    DataOption,
    JudgeKeyOption,
    JudgeModelOption,
    JudgeOptions,
    JudgeUrlOption,
    task_of_run,
)
from memserver_evals.judging.string import StringJudge
from memserver_evals.report.compare import compare
from memserver_evals.report.markdown import tables
from memserver_evals.report.overview import BEGIN, END, as_markdown, put_into, read_groups
from memserver_evals.report.page import gold_answers, write_report
from memserver_evals.report.plots import draw_groups
from memserver_evals.runs.records import PlayedRecord
from memserver_evals.runs.results import Table
from memserver_evals.runs.run_folder import RunFolder, open_run, read_manifest
from memserver_evals.runs.runner import RunOutcome, jobs_of, judge_and_report
from memserver_evals.runs.verdicts import Bench
from memserver_evals.scoring.statistics import Estimate
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
    runs: Annotated[
        list[str],
        typer.Argument(help="Folders of runs that have ended; RUN:SYSTEM is one of its systems."),
    ],
    out: Annotated[Path, typer.Option(help="The PNG to write.")] = Path("scores.png"),
    page: Annotated[
        Path | None,
        typer.Option(
            help=f"A page of Markdown in which picture and table are put between the lines {BEGIN} and {END}."
        ),
    ] = None,
) -> None:
    """Draw the main scores of several runs in one picture, a bar for each system of each task, with their table."""
    groups = read_groups(runs)
    out.write_bytes(draw_groups(groups))
    if page is None:
        print(as_markdown(groups))
    else:
        put_into(page, out, groups)
    console.print(f"{out}" if page is None else f"{out}, {page}")


async def judged(
    task: Task[Any],
    folder: RunFolder,
    records: Sequence[PlayedRecord],
    options: JudgeOptions,
    at_once: int,
) -> RunOutcome:
    """Judge what was played, by the string judge and by the one that was named; write the tables.

    Raises InvalidInput: the judge has no model; MemserverError: it can't be asked.
    """
    async with options.opened() as judge:
        benches = [Bench(StringJudge())]
        if judge is not None:
            benches.append(Bench(judge, identity=judge.identity))
        return await judge_and_report(task, folder, records, benches, console, at_once=at_once)


def report(out: Path, manifest: JsonObject, task: Task[Any], outcome: RunOutcome) -> None:
    """Write the report, where matplotlib is there, and print the scores."""
    gold = gold_answers(task.examples())
    try:
        page = write_report(out, manifest, outcome, gold)
    except SetupError as error:  # without matplotlib there are the numbers
        page = None
        console.print(f"No report: {error.message} {error.hint}")
    print_scores(outcome.table, manifest.get("windows", {}))
    console.print(f"{page or out}")


def print_scores(table: Table, windows: Mapping[str, int | None]) -> None:
    """The main score with its interval, how it came about, and what it cost; then the means of the other scores.

    The report has their intervals.
    """
    titles = ("system", "window", "n", table.main_score.replace("_", " "), "words")
    print_table(
        (*titles, "searches", "found", "fitted", "page", "tokens in/out", "no answer"),
        [_main(table, name, windows.get(name)) for name in table.systems],
        sentences=("no answer",),
    )
    others = [name for name in table.scores if name != table.main_score]
    if others:
        rows = [
            (
                name.replace("_", " "),
                *(_mean(table.overall[system].scores.get(name)) for system in table.systems),
            )
            for name in others
        ]
        print_table(("score", *table.systems), rows)


def _main(table: Table, name: str, window: int | None) -> Sequence[str]:
    one = table.overall[name]
    main = one.scores.get(table.main_score)
    return (
        name,
        "-" if window is None else str(window),
        str(one.examples),
        "-" if main is None else main.shown(2),
        f"{one.answer_words:.0f}",
        *(("-", "-") if one.searches is None else one.searches.shown()),
        "-" if one.share_fitted is None else f"{100 * one.share_fitted:.0f} %",
        "-" if one.page_characters is None else f"{one.page_characters:.0f} chars",
        f"{one.tokens_in:.0f}/{one.tokens_out:.0f}",
        ", ".join(f"{count} {code}" for code, count in one.errors.items()) or "0",
    )


def _mean(found: Estimate | None) -> str:
    return f"{found.mean:.3f}" if found and found.count else "-"
