"""The commands of `memserver eval`: one for each task, which runs it, and those on tasks and runs."""

import platform
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer

import memserver
from memserver.cli.console import console
from memserver.cli.declaring import command_of
from memserver.cli.local_engine import local_engine
from memserver.cli.running_server import connect
from memserver.errors import InvalidInput
from memserver.messages import JsonObject
from memserver.settings import Settings
from memserver_evals.catalog import AGENT, AGENTS, WITHOUT_MODEL, check_systems
from memserver_evals.cli.catalog import list_tasks, show_task
from memserver_evals.cli.finished import (
    compare_runs,
    draw_picture,
    judged,
    print_tables,
    report,
    report_again,
)
from memserver_evals.cli.labels import show_agreement, write_labels
from memserver_evals.cli.options import RunOptions
from memserver_evals.cli.template import Template, find_template
from memserver_evals.runs.engines import Engine, LocalEngine
from memserver_evals.runs.ray_engine import RayEngine
from memserver_evals.runs.records import Job, PlayedRecord
from memserver_evals.runs.run_folder import RunFolder, open_run
from memserver_evals.runs.runner import jobs_of, play_all, sample
from memserver_evals.task import Task
from memserver_evals.tasks.catalog import TASKS
from memserver_evals.tasks.registry import TaskEntry
from memserver_evals.wiring import (
    Plan,
    Speak,
    SystemOptions,
    ask_about_model,
    open_player,
    own_servers,
)

FORMAT = 1
"""Of a run's folder."""
RUNS = Path("evaluation-runs")

ENGINE_SECONDS = 600
"""How long the local model may take to load."""

PATIENCE = {"llm_timeout": 900.0, "turn_timeout": 3600.0}
"""Seconds, unless the settings say others: a model on a busy CPU may take minutes for a long prompt."""


def make_commands() -> typer.Typer:
    commands = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        help="Evaluations: does the memory remember?",
    )
    commands.command("list")(list_tasks)
    commands.command("show")(show_task)
    commands.command("compare")(compare_runs)
    commands.command("report")(report_again)
    commands.command("tables")(print_tables)
    commands.command("picture")(draw_picture)
    commands.command("labels")(write_labels)
    commands.command("agreement")(show_agreement)
    for entry in TASKS.values():
        commands.command(
            entry.name, help=f"Run: {entry.summary}. Its data and options: eval show {entry.name}."
        )(_run_command(entry))
    return commands


def _run_command(entry: TaskEntry) -> Callable[..., None]:
    """The options are those of every run, with the task's own help and defaults."""
    options = "; ".join(f"{name}: {is_}" for name, is_ in entry.options.items()) or "It has none."
    systems = ", ".join(entry.systems) or "memserver and full"
    hints = {
        "system": Annotated[
            list[str] | None,
            typer.Option(help=f"To compare; repeatable; all: every one. Left out: {systems}."),
        ],
        "set_": Annotated[
            list[str] | None,
            typer.Option("--set", help=f"The task's own: key=value; repeatable. {options}"),
        ],
    }
    defaults = {"context_window": entry.windows[0], "full_window": entry.windows[1]}
    return command_of(RunOptions, partial(run, entry), hints, defaults)


def run(entry: TaskEntry, given: RunOptions) -> None:
    """Run a task; what was begun in the same folder is resumed.

    Raises MemserverError: the data is bad, which is found before anything runs; or something stays down.
    """
    template = find_template(given.named_agent, given.url, given.api_key)
    systems, options = _choose(entry, given, template)
    if template is not None:
        given = replace(given, url=template.url)
    task_options = given.for_task()
    task = entry.make(task_options)
    examples = sample(task, given.limit, given.seed)
    out = given.out or RUNS / f"{entry.name}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    with ExitStack() as stack:
        settings = Settings()
        needs_model = _needs_model(systems, given.url)
        if needs_model and settings.llm_base_url is None:
            console.print("Starting the local model …")
            engine, settings = stack.enter_context(local_engine(settings))
            anyio.run(partial(engine.wait_until_ready, within=ENGINE_SECONDS))
        settings = _sampling(settings, given)
        model = ask_about_model(settings) if needs_model else _model_of_server(systems, given)
        options = replace(options, speak=_speak(given, settings))
        if needs_model:
            options = options.within(int(model["window"]))
        manifest = _manifest(entry, task, given, options, model, systems, examples)
        manifest |= {"agent": template.about} if template else {}
        folder = stack.enter_context(open_run(out, manifest))
        jobs = jobs_of(systems, examples)
        done = sum(job in folder.done for job in jobs)
        console.print(f"{out}: {len(jobs)} to play, {done} of them done.")
        if done < len(jobs):
            folder.note_start(given.command(entry.name, systems))
            servers = own_servers(settings, systems, given.url, given.database_url)
            addresses = stack.enter_context(servers)
            plan = Plan(
                entry.name,
                task_options,
                systems,
                options,
                addresses,
                given.api_key,
                settings.model_dump(mode="json", exclude_unset=True) | _secrets(settings),
            )
            records = anyio.run(_played, plan.as_json(), folder, jobs, given)
        else:
            records = folder.put_in_order(jobs)
        outcome = anyio.run(judged, task, folder, records, given.judge, given.at_once)
        report(out, manifest, task, outcome)


def _choose(
    entry: TaskEntry, given: RunOptions, template: Template | None
) -> tuple[tuple[str, ...], SystemOptions]:
    """Who plays, and how. Raises InvalidInput."""
    usual = ["memserver", "full"] if template is None else [AGENT]
    systems = check_systems(given.system or entry.systems or usual, entry)
    if template is None:
        return systems, given.for_systems()
    if not set(AGENTS) & set(systems):
        raise InvalidInput(
            "--agent names an agent, but no system is one.", hint="--system memserver"
        )
    return systems, replace(given.for_systems(), template=template.named)


async def _played(
    plan: JsonObject, folder: RunFolder, jobs: Sequence[Job], given: RunOptions
) -> list[PlayedRecord]:
    async with open_player(plan) as player:
        engine: Engine = LocalEngine(player, given.at_once)
        if given.engine == "ray":
            engine = RayEngine(
                open_player, plan, player, workers=given.workers, at_once=given.at_once
            )
        return await play_all(folder, jobs, engine, console)


def _manifest(  # noqa: PLR0913 - all of it decides what the run is
    entry: TaskEntry,
    task: Task[Any],
    given: RunOptions,
    options: SystemOptions,
    model: JsonObject,
    systems: Sequence[str],
    examples: Sequence[str],
) -> JsonObject:
    return {
        "format": FORMAT,
        "task": entry.name,
        "about": entry.summary,
        "main_score": task.main_score,
        "task_options": dict(given.for_task().extra),
        "data_hash": task.data_hash,
        "seed": given.seed,
        "limit": given.limit,
        "model": model,
        "temperature": given.temperature,
        "options": options.as_json(),
        "windows": {name: options.window_of(name) for name in systems},
        "server": given.url or "",
        "versions": {
            "memserver": memserver.__version__,
            "python": ".".join(platform.python_version_tuple()[:2]),
        },
        "systems": list(systems),
        "examples": list(examples),
    }


def _model_of_server(systems: Sequence[str], given: RunOptions) -> JsonObject:
    """What the server that is evaluated says of its model, where no other one is asked."""
    if given.url is None or not set(AGENTS) & set(systems):
        return {}
    with connect(given.url, given.api_key) as client:
        [model] = [each for each in client.ready().components if each.name == "model"]
    return {"name": model.detail.partition(",")[0]} if model.ready else {}


def _needs_model(systems: Sequence[str], url: str | None) -> bool:
    return not set(systems) <= WITHOUT_MODEL | (set(AGENTS) if url is not None else set())


def _sampling(settings: Settings, given: RunOptions) -> Settings:
    """The settings with the run's temperature and seed, and with time: slow is not wrong."""
    body = {**settings.llm_body, "temperature": given.temperature}
    patience = {
        name: time for name, time in PATIENCE.items() if name not in settings.model_fields_set
    }
    return settings.model_copy(update={"llm_body": body, "llm_seed": given.seed, **patience})


def _speak(given: RunOptions, settings: Settings) -> Speak:
    """A model that was trained for memserver speaks by send_message; any other one by text."""
    if given.speak != "auto":
        return given.speak
    return "call" if "memserver" in (settings.llm_model or "") else "text"


def _secrets(settings: Settings) -> JsonObject:
    """What `model_dump` hides, for the systems of other processes."""
    return {
        name: secret.get_secret_value()
        for name in ("llm_api_key", "embedding_api_key")
        if (secret := getattr(settings, name)) is not None
    }
