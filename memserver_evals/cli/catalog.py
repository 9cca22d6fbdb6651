"""The commands `eval list` and `eval show`: what can be run, what each task needs, and an example of it."""

from typing import Annotated

import anyio
import typer

from memserver.cli.console import console, print_json, print_table
from memserver.cli.declaring import read_pairs
from memserver.cli.options import JsonOption
from memserver.errors import MemserverError
from memserver.messages import JsonObject
from memserver_evals.catalog import SYSTEMS, check_systems
from memserver_evals.cli.examples import show_examples
from memserver_evals.cli.options import DataOption
from memserver_evals.tasks.catalog import TASKS
from memserver_evals.tasks.registry import TaskEntry, TaskOptions, find_task


def list_tasks(as_json: JsonOption = False) -> None:
    """List the tasks and the systems that can be compared on them."""
    if as_json:
        print_json(
            {
                "tasks": [_as_json(entry) for entry in TASKS.values()],
                "systems": [
                    {"name": name, "is": is_, "for": sorted(suits)}
                    for name, (suits, is_) in SYSTEMS.items()
                ],
            }
        )
        return
    print_table(
        ("task", "measures"),
        [(entry.name, entry.summary) for entry in TASKS.values()],
        sentences=("measures",),
        title="Tasks",
    )
    print_table(
        ("system", "is", "for"),
        [(name, is_, ", ".join(sorted(suits))) for name, (suits, is_) in SYSTEMS.items()],
        sentences=("is",),
        title="Systems (--system)",
    )
    console.print("memserver eval show TASK: its data, its options and who can play it.")


def show_task(
    task: Annotated[str, typer.Argument(help="As `eval list` names it.")],
    data: DataOption = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="As for a run: key=value; repeatable.")
    ] = None,
    examples: Annotated[int, typer.Option(min=0, help="How many are shown.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Show a task: what it measures, what it needs, its own options, who can play it, and an example's prompt."""
    entry = find_task(TASKS, task)
    if as_json:
        print_json(_as_json(entry))
        return
    console.print(f"{entry.name}: {entry.summary}\n")
    needs = "".join(f"\n  {each}" for each in entry.needs) or " nothing, it makes its own data"
    console.print(f"Needs:{needs}")
    if entry.needs:
        console.print("  (--data or MEMSERVER_DATA says where; see memserver_evals/README.md)")
    systems = [(name, SYSTEMS[name][1]) for name in check_systems(["all"], entry)]
    print_table(("--system", "is"), systems, sentences=("is",), title="Systems")
    options = list(entry.options.items())
    print_table(
        ("--set", "is"), options, sentences=("is",), title="Options", empty="It has no options."
    )
    try:
        made = entry.make(TaskOptions(data, extra=read_pairs("--set", set_ or ())))
        anyio.run(show_examples, made, examples)
    except MemserverError as error:
        console.print(f"No example: {error.message} {error.hint}")
    console.print(f"memserver eval {entry.name} --limit 3 runs three examples of it.")


def _as_json(entry: TaskEntry) -> JsonObject:
    return {
        "name": entry.name,
        "measures": entry.summary,
        "needs": list(entry.needs),
        "options": dict(entry.options),
        "systems": list(check_systems(["all"], entry)),
    }
