"""How fast answers are scored, and which references of a published file pass their own tests.

    python -m benchmarks.colbench                      generated tasks
    python -m benchmarks.colbench --data FILE          the tasks of a file

The last line of `--json` is one object.
"""

import argparse
import asyncio
import json
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from memserver_evals.colbench.backend.examples import BackendExample, load_backend
from memserver_evals.colbench.backend.generator import generate
from memserver_evals.colbench.backend.grading import Grade, Grader
from memserver_evals.colbench.sandbox.fork_server import SandboxLimits
from memserver_evals.colbench.sandbox.pool import Sandbox


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="a published task file")
    parser.add_argument("--count", type=int, default=500, help="generated tasks")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, help="jobs at once; a core each by default")
    parser.add_argument(
        "--no-namespaces", action="store_true", help="as in a container that forbids them"
    )
    parser.add_argument(
        "--disposable", action="store_true", help="nothing on the machine is worth keeping"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.data:
        examples = load_backend(options.data)
    else:
        examples = tuple(
            task.example for task in generate("train", options.count, seed=options.seed)
        )
    report = asyncio.run(_measured(examples, options))
    if options.json:
        print(json.dumps(report))
    else:
        _print(report)


async def _measured(
    examples: tuple[BackendExample, ...], options: argparse.Namespace
) -> dict[str, Any]:
    limits = SandboxLimits(wall_seconds=30, job_seconds=120)
    async with Sandbox(
        limits,
        workers=options.workers,
        namespaces=not options.no_namespaces,
        disposable=options.disposable,
    ) as sandbox:
        protection = asdict(await sandbox.protection())
        grader = Grader(sandbox)
        started = time.perf_counter()
        with Progress(console=Console(stderr=True)) as progress:
            bar = progress.add_task("scoring", total=len(examples))

            async def graded(example: BackendExample) -> Grade:
                grade = await grader.grade(example, example.reference)
                progress.advance(bar)
                return grade

            grades = await asyncio.gather(*map(graded, examples))
        seconds = time.perf_counter() - started
    calls = sum(len(grade.passed) for grade in grades)
    return {
        "tasks": len(examples),
        "references_that_pass_all": sum(all(grade.passed) for grade in grades),
        "share_of_tests_passed": sum(map(sum, (grade.passed for grade in grades))) / calls,
        "why_not": dict(
            Counter(
                outcome.error.partition(":")[0] or outcome.stop or "differs"
                for grade in grades
                for passed, outcome in zip(grade.passed, grade.expected, strict=True)
                if not passed
            )
        ),
        "failed": [e.id for e, g in zip(examples, grades, strict=True) if not all(g.passed)],
        "seconds": seconds,
        "processes_per_second": 2 * len(examples) / seconds,
        "calls_per_second": 2 * calls / seconds,
        "protection": protection,
    }


def _print(report: dict[str, Any]) -> None:
    table = Table(title="Scoring references against themselves", show_header=False)
    for name, value in report.items():
        table.add_row(
            name.replace("_", " "), f"{value:.4g}" if isinstance(value, float) else str(value)
        )
    Console().print(table)


if __name__ == "__main__":
    main()
