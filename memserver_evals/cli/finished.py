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
from memserver.openai_http.client import EndpointClient
from memserver.openai_http.endpoint import Endpoint
from memserver.prompts import Prompts
from memserver.settings import Settings
from memserver_evals.cli.terminal import print_scores, shown_estimate
from memserver_evals.judging.endpoint import EndpointJudge
from memserver_evals.judging.string import StringJudge
from memserver_evals.report.compare import Comparison, compare
from memserver_evals.report.markdown import tables
from memserver_evals.report.overview import overview
from memserver_evals.report.page import gold_answers, write_report
from memserver_evals.runs.records import Record
from memserver_evals.runs.run_folder import RunFolder, open_run, read_manifest
from memserver_evals.runs.runner import Outcome, jobs_of, judge_and_report
from memserver_evals.runs.verdicts import Bench
from memserver_evals.task import Task
from memserver_evals.tasks.catalog import TASKS
from memserver_evals.tasks.registry import TaskOptions, find_task


def compare_runs(
    a: Annotated[str, typer.Argument(help="A run's folder; RUN:SYSTEM names one of its systems.")],
    b: Annotated[str, typer.Argument(help="The other one.")],
    score: Annotated[str | None, typer.Option(help="Which score; left out: the main one.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """How B differs from A, example by example, on the examples that both have."""
    found = compare(a, b, score)
    if as_json:
        print(json.dumps(_comparison_as_json(found)))
        return
    rows = [
        (
            name,
            str(each.estimate.count),
            f"{each.a:.3f}",
            f"{each.b:.3f}",
            shown_estimate(each.estimate, sign=True),
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
    data: Annotated[Path | None, typer.Option(envvar="MEMSERVER_DATA", help="The data.")] = None,
    judge_url: Annotated[str | None, typer.Option(help="An endpoint that judges (…/v1).")] = None,
    judge_model: Annotated[str | None, typer.Option(help="Its model.")] = None,
    judge_key: Annotated[str | None, typer.Option(envvar="MEMSERVER_JUDGE_API_KEY")] = None,
) -> None:
    """Score, judge and report a run again, without playing anything: after a better scorer, or by a new judge."""
    manifest = read_manifest(run)
    options = TaskOptions(data, int(manifest["seed"]), dict(manifest["task_options"]))
    task = find_task(TASKS, str(manifest["task"])).make(options)
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
        outcome = anyio.run(judged, task, folder, records, (judge_url, judge_model, judge_key), 4)
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
    out.write_bytes(overview(runs))
    console.print(f"{out}")


async def judged(
    task: Task[Any],
    folder: RunFolder,
    records: Sequence[Record],
    judge: tuple[str | None, str | None, str | None],
    at_once: int,
) -> Outcome:
    """Judge what was played, by the string judge and by the one that was named (URL, model, key); write the tables.

    Raises:
        InvalidInput: the judge has no model.
        MemserverError: it can't be asked.
    """
    benches = [Bench(StringJudge())]
    url, model, key = judge
    if url is not None:
        if model is None:
            raise InvalidInput("--judge-url is given, but no --judge-model.")
        client = EndpointClient(Endpoint(url, key or "", title="judge's endpoint"))
        asked = EndpointJudge(client, model, Prompts(Settings().prompts_dir))
        benches.append(Bench(asked, identity=asked.identity))
        try:
            return await judge_and_report(task, folder, records, benches, console, at_once=at_once)
        finally:
            await client.aclose()
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


def _comparison_as_json(found: Comparison) -> JsonObject:
    return {
        "a": found.a.title,
        "b": found.b.title,
        "score": found.score,
        "shared": found.shared,
        "differences": {name: asdict(each) for name, each in found.differences.items()},
    }
