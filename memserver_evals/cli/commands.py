"""The command `eval`: list the tasks, run one, compare two runs, report one again."""

import json
import platform
import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer

import memserver
from memserver.cli.console import console
from memserver.cli.local_engine import local_engine
from memserver.errors import InvalidInput
from memserver.messages import JsonObject
from memserver.settings import Settings
from memserver_evals.catalog import AGENTS, WITHOUT_MODEL, check_systems
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
from memserver_evals.runs.engines import Engine, LocalEngine
from memserver_evals.runs.ray_engine import RayEngine
from memserver_evals.runs.records import Job, Record
from memserver_evals.runs.run_folder import RunFolder, open_run
from memserver_evals.runs.runner import jobs_of, play_all, sample
from memserver_evals.task import Task
from memserver_evals.tasks.catalog import TASKS
from memserver_evals.tasks.registry import TaskEntry, TaskOptions
from memserver_evals.wiring import (
    Plan,
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


class EngineName(StrEnum):
    LOCAL = "local"
    RAY = "ray"


class ModeName(StrEnum):
    IMPORT = "import"
    ACT = "act"


class ProtocolName(StrEnum):
    TOOLS = "tools"
    CHAT = "chat"


class SpeakName(StrEnum):
    AUTO = "auto"
    TEXT = "text"
    CALL = "call"


@dataclass(frozen=True, slots=True)
class Wishes:
    systems: Sequence[str]
    limit: int | None
    options: TaskOptions
    system_options: SystemOptions
    speak: SpeakName
    temperature: float
    out: Path | None
    url: str | None
    api_key: str | None
    database_url: str | None
    at_once: int
    engine: EngineName
    workers: int
    judge_url: str | None
    judge_model: str | None
    judge_key: str | None


def make_commands() -> typer.Typer:
    """The commands, one for each task among them."""
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


def _options(entry: TaskEntry) -> str:
    return "; ".join(f"{name}: {is_}" for name, is_ in entry.options.items()) or "It has none."


def _run_command(entry: TaskEntry) -> Callable[..., None]:
    def command(  # noqa: PLR0913 - a command's parameters are its options
        system: Annotated[
            list[str] | None,
            typer.Option(
                help="To compare; repeatable; all: every one. Left out: "
                + (", ".join(entry.systems) or "memserver and full")
                + "."
            ),
        ] = None,
        limit: Annotated[int | None, typer.Option(min=1, help="A fixed sample of so many.")] = None,
        seed: Annotated[int, typer.Option(help="Of the sample and of all chance.")] = 0,
        data: Annotated[
            Path | None, typer.Option(envvar="MEMSERVER_DATA", help="The folder with the data.")
        ] = None,
        set_: Annotated[
            list[str] | None,
            typer.Option("--set", help=f"The task's own: key=value; repeatable. {_options(entry)}"),
        ] = None,
        out: Annotated[
            Path | None,
            typer.Option(help="The run's folder; one that is there is resumed."),
        ] = None,
        url: Annotated[
            str | None, typer.Option(help="A memserver to evaluate; left out: one is started.")
        ] = None,
        api_key: Annotated[str | None, typer.Option(envvar="MEMSERVER_API_KEY")] = None,
        database_url: Annotated[
            str | None,
            typer.Option(
                envvar="MEMSERVER_EVALUATION_DATABASE_URL",
                help="A Postgres for the memserver that is started; left out: one of its own.",
            ),
        ] = None,
        at_once: Annotated[int, typer.Option(min=1, help="Examples played at a time.")] = 4,
        engine: Annotated[
            EngineName, typer.Option(help="local, or a Ray cluster.")
        ] = EngineName.LOCAL,
        workers: Annotated[int, typer.Option(min=1, help="Of a Ray cluster.")] = 2,
        mode: Annotated[
            ModeName,
            typer.Option(
                help="memserver is told the sessions (import) or takes part in them (act)."
            ),
        ] = ModeName.IMPORT,
        protocol: Annotated[
            ProtocolName,
            typer.Option(
                help="memserver's agents act by calls of tools, or are asked in plain chat."
            ),
        ] = ProtocolName.TOOLS,
        model: Annotated[
            str | None,
            typer.Option(help="Of memserver's agents, such as an adapter; left out: the server's."),
        ] = None,
        agent: Annotated[
            list[str] | None,
            typer.Option(help="An option of memserver's agents: key=value; repeatable."),
        ] = None,
        context_window: Annotated[
            int | None, typer.Option(min=512, help="Tokens that every system but full may use.")
        ] = entry.windows[0],
        full_window: Annotated[
            int | None, typer.Option(min=512, help="Tokens that the system full may use.")
        ] = entry.windows[1],
        max_tokens: Annotated[
            int, typer.Option(min=16, help="Of an answer without memserver.")
        ] = 256,
        summary_tokens: Annotated[int, typer.Option(min=64, help="Of a system's summary.")] = 512,
        top_k: Annotated[int, typer.Option(min=1, help="Texts of the system retrieval.")] = 10,
        speak: Annotated[
            SpeakName,
            typer.Option(help="Without memserver the model writes text or calls send_message."),
        ] = SpeakName.AUTO,
        temperature: Annotated[float, typer.Option(min=0, help="Of the model.")] = 0,
        judge_url: Annotated[
            str | None, typer.Option(help="An endpoint that judges (…/v1).")
        ] = None,
        judge_model: Annotated[str | None, typer.Option(help="Its model.")] = None,
        judge_key: Annotated[str | None, typer.Option(envvar="MEMSERVER_JUDGE_API_KEY")] = None,
    ) -> None:
        wishes = Wishes(
            system or entry.systems or ["memserver", "full"],
            limit,
            TaskOptions(data, seed, _pairs("--set", set_ or ())),
            SystemOptions(
                mode.value,
                _agent_options(agent or (), protocol),
                context_window,
                full_window,
                max_tokens,
                summary_tokens,
                top_k,
                agent_model=model,
            ),
            speak,
            temperature,
            out,
            url,
            api_key,
            database_url,
            at_once,
            engine,
            workers,
            judge_url,
            judge_model,
            judge_key,
        )
        run(entry, wishes)

    return command


def run(entry: TaskEntry, wishes: Wishes) -> None:
    """Run a task; what was begun in the same folder is resumed.

    Raises MemserverError: the data is bad, which is found before anything runs; or something stays down.
    """
    systems = check_systems(wishes.systems, entry)
    task = entry.make(wishes.options)
    examples = sample([each.id for each in task.examples()], wishes.limit, wishes.options.seed)
    out = wishes.out or RUNS / f"{entry.name}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    with ExitStack() as stack:
        settings = Settings()
        needs_model = _needs_model(systems, wishes.url)
        if needs_model and settings.llm_base_url is None:
            console.print("Starting the local model …")
            engine = stack.enter_context(local_engine(settings))
            anyio.run(partial(engine.wait_until_ready, within=ENGINE_SECONDS))
            settings = Settings()
        settings = _sampling(settings, wishes)
        model = ask_about_model(settings) if needs_model else {}
        options = replace(wishes.system_options, speak=_speaking(wishes.speak, settings))
        if model:
            options = options.within(int(model["window"]))
        manifest = _manifest(entry, task, examples, systems, wishes, options, model)
        folder = stack.enter_context(open_run(out, manifest))
        jobs = jobs_of(systems, examples)
        done = sum(job in folder.done for job in jobs)
        console.print(f"{out}: {len(jobs)} to play, {done} of them done.")
        records = None
        if done < len(jobs):
            addresses = stack.enter_context(
                own_servers(settings, systems, wishes.url, wishes.database_url)
            )
            plan = Plan(
                entry.name,
                wishes.options,
                systems,
                options,
                addresses,
                wishes.api_key,
                settings.model_dump(mode="json", exclude_unset=True) | _secrets(settings),
            )
            records = anyio.run(_played, plan.as_json(), folder, jobs, wishes)
        else:
            records = folder.put_in_order(jobs)
        judge = (wishes.judge_url, wishes.judge_model, wishes.judge_key)
        outcome = anyio.run(judged, task, folder, records, judge, wishes.at_once)
        report(out, manifest, task, outcome)


async def _played(
    plan: JsonObject, folder: RunFolder, jobs: Sequence[Job], wishes: Wishes
) -> list[Record]:
    async with open_player(plan) as player:
        engine: Engine = LocalEngine(player, wishes.at_once)
        if wishes.engine is EngineName.RAY:
            engine = RayEngine(
                open_player, plan, player, workers=wishes.workers, at_once=wishes.at_once
            )
        return await play_all(folder, jobs, engine, console)


def _manifest(  # noqa: PLR0913 - all of it decides what the run is
    entry: TaskEntry,
    task: Task[Any],
    examples: Sequence[str],
    systems: Sequence[str],
    wishes: Wishes,
    options: SystemOptions,
    model: JsonObject,
) -> JsonObject:
    return {
        "format": FORMAT,
        "task": entry.name,
        "about": entry.summary,
        "main_score": task.main_score,
        "task_options": dict(wishes.options.extra),
        "data_hash": task.data_hash,
        "seed": wishes.options.seed,
        "limit": wishes.limit,
        "model": model,
        "temperature": wishes.temperature,
        "options": options.as_told(),
        "windows": {name: options.window_of(name) for name in systems},
        "server": wishes.url or "",
        "versions": {
            "memserver": memserver.__version__,
            "python": ".".join(platform.python_version_tuple()[:2]),
        },
        "systems": list(systems),
        "examples": list(examples),
    }


def _needs_model(systems: Sequence[str], url: str | None) -> bool:
    return not set(systems) <= WITHOUT_MODEL | (set(AGENTS) if url is not None else set())


def _sampling(settings: Settings, wishes: Wishes) -> Settings:
    """The settings with the run's temperature and seed, and with time: slow is not wrong."""
    body = {**settings.llm_body, "temperature": wishes.temperature}
    patience = {
        name: time for name, time in PATIENCE.items() if name not in settings.model_fields_set
    }
    chance = {"llm_body": body, "llm_seed": wishes.options.seed}
    return settings.model_copy(update={**chance, **patience})


def _speaking(speak: SpeakName, settings: Settings) -> Any:  # noqa: ANN401 - one of two names
    """A model that was trained for memserver speaks by send_message; any other one by text."""
    if speak is not SpeakName.AUTO:
        return speak.value
    trained = re.search(r"memserver", settings.llm_model or "") is not None
    return "call" if trained else "text"


def _secrets(settings: Settings) -> JsonObject:
    """What `model_dump` hides, for the systems of other processes."""
    return {
        name: secret.get_secret_value()
        for name in ("llm_api_key", "embedding_api_key")
        if (secret := getattr(settings, name)) is not None
    }


def _agent_options(given: Sequence[str], protocol: ProtocolName) -> JsonObject:
    """Values are JSON where they can be, so that 256 and true are what they look like."""
    options: JsonObject = {"protocol": "chat"} if protocol is ProtocolName.CHAT else {}
    for name, value in _pairs("--agent", given).items():
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options


def _pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in given:
        name, separated, value = each.partition("=")
        if not separated:
            raise InvalidInput(f"{option} {each}: it is key=value.")
        found[name] = value
    return found
