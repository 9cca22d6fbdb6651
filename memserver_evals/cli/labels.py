"""The commands `eval labels` and `eval agreement`: how far the judges agree with labels given by hand."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import zip_longest
from math import isnan
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer

from memserver.cli.console import console, print_table
from memserver.cli.options import JsonOption
from memserver.errors import BadData, InvalidInput
from memserver_evals.cli.options import (
    DataOption,
    JudgeKeyOption,
    JudgeModelOption,
    JudgeOptions,
    JudgeUrlOption,
    task_of_run,
)
from memserver_evals.judging.agreement import (
    Agreement,
    LabelledAnswer,
    agreement,
    read_labels,
    write_unlabelled,
)
from memserver_evals.judging.string import StringJudge
from memserver_evals.runs.records import Job, PlayedRecord
from memserver_evals.runs.run_folder import open_run, read_manifest
from memserver_evals.task import Played, Reply, Task, Turn
from memserver_evals.tasks.catalog import TASKS
from memserver_evals.tasks.registry import TaskOptions, find_task

ANSWERS = 60


def write_labels(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    out: Annotated[Path, typer.Argument(help="The file to write; it must not be there yet.")],
    count: Annotated[int, typer.Option(min=1, help="How many answers.")] = ANSWERS,
    seed: Annotated[int, typer.Option(help="Of the sample.")] = 0,
    data: DataOption = None,
) -> None:
    """Write a sample of a run's answers to label by hand, equally many of each system.

    Answers with nothing in them are left out: nobody has to judge those. Fill in `label` (correct or wrong)
    and `labelled_by` in each line, then run `memserver eval agreement`.
    """
    manifest = read_manifest(run)
    task = task_of_run(manifest, data)
    with open_run(run, manifest) as folder:
        answers = list(_judgeable(task, folder.done))
    if not answers:
        raise InvalidInput(f"{run} has no answers that a judge is asked about.")
    written = write_unlabelled(out, _sample(answers, count, seed))
    console.print(f"{out}: {written} of {len(answers)} answers, to be labelled.")


def show_agreement(
    labels: Annotated[Path, typer.Argument(help="The labelled answers (JSON Lines).")],
    judge_url: JudgeUrlOption = None,
    judge_model: JudgeModelOption = None,
    judge_key: JudgeKeyOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """How far the judges agree with labels given by hand: the share, and Cohen's kappa."""
    answers = [_completed(each, data) for each in read_labels(labels)]
    found = anyio.run(_agreements, answers, JudgeOptions(judge_url, judge_model, judge_key))
    by = ", ".join(sorted({each.labelled_by for each in answers}))
    if as_json:
        shown = {"labelled_by": by, "judges": [_as_json(each) for each in found]}
        console.print(json.dumps(shown, ensure_ascii=False))
        return
    rows = []
    for each in found:
        kappa = "-" if isnan(each.kappa) else f"{each.kappa:.3f}"
        counts = (each.too_kind, each.too_strict, each.broken)
        rows.append(
            (each.judge, str(each.answers), f"{each.share:.3f}", kappa, *(str(n) for n in counts))
        )
    print_table(
        ("judge", "answers", "agree", "kappa", "too kind", "too strict", "no verdict"), rows
    )
    right = sum(each.label == "correct" for each in answers)
    console.print(f"{len(answers)} answers, {right} of them labelled correct, by {by}.")


async def _agreements(answers: Sequence[LabelledAnswer], options: JudgeOptions) -> list[Agreement]:
    async with options.opened() as judge:
        judges = [StringJudge(), *([judge] if judge else [])]
        return [await agreement(each, answers) for each in judges]


def _judgeable(
    task: Task[Any], done: "dict[Job, PlayedRecord]"
) -> Iterator[tuple[str, LabelledAnswer]]:
    """The answers that a judge would be asked about, with their system."""
    examples = {example.id: example for example in task.examples()}
    for job, record in done.items():
        claim = task.claim(examples[job.example], record.played)
        if claim is not None and claim.answer.strip():
            yield (
                job.system,
                LabelledAnswer(
                    id=f"{task.name}/{job.system}/{job.example}",
                    question=claim.question,
                    gold=claim.gold,
                    answer=claim.answer,
                    kind=claim.kind,
                ),
            )


def _completed(answer: LabelledAnswer, data: Path | None) -> LabelledAnswer:
    """With the question and what is right, found in the data where the labels have none."""
    if answer.gold:
        return answer
    name, _, example_id = answer.id.partition("/")
    task = _task(name, data)
    example = next((one for one in task.examples() if one.id == example_id.partition("/")[2]), None)
    played = Played((Turn("", Reply(answer.answer)),))
    claim = task.claim(example, played) if example is not None else None
    if claim is None:
        raise BadData(f"{answer.id} has no question, and the data has none of that name.")
    return answer.model_copy(
        update={"question": claim.question, "gold": claim.gold, "kind": claim.kind}
    )


@cache
def _task(name: str, data: Path | None) -> Task[Any]:
    return find_task(TASKS, name).make(TaskOptions(data))


def _sample(
    answers: Sequence[tuple[str, LabelledAnswer]], count: int, seed: int
) -> list[LabelledAnswer]:
    """So many, of each system in turn; the same for a seed."""
    drawn = sorted(
        answers, key=lambda each: hashlib.sha256(f"{seed}\0{each[1].id}".encode()).digest()
    )
    systems = dict.fromkeys(system for system, _ in answers)
    columns = [[answer for system, answer in drawn if system == name] for name in systems]
    rows = [answer for row in zip_longest(*columns) for answer in row if answer is not None]
    return rows[:count]


def _as_json(found: Agreement) -> dict[str, Any]:
    return {
        "judge": found.judge,
        "answers": found.answers,
        "share": round(found.share, 4),
        "kappa": None if isnan(found.kappa) else round(found.kappa, 4),
        "both_correct": found.both_correct,
        "both_wrong": found.both_wrong,
        "too_kind": found.too_kind,
        "too_strict": found.too_strict,
        "no_verdict": found.broken,
    }
