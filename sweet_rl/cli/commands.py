"""The command `train`: SWEET-RL and its baselines, stage by stage or all, from a recipe."""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from memserver.cli.console import console, print_table
from memserver.errors import InvalidInput, SetupError
from memserver.local.engine.paths import EnginePaths
from memserver.messages import JsonObject
from memserver.openai_http.endpoint import Endpoint
from memserver.settings import Settings
from sweet_rl.deadline import EXIT_STATUS, Deadline, OutOfTime
from sweet_rl.recipe import Recipe, find_recipe, load_recipe
from sweet_rl.runs.bench import Bench
from sweet_rl.runs.play_work import export
from sweet_rl.runs.report import rows_of, title_of, write_report
from sweet_rl.runs.results import gather, write_results
from sweet_rl.runs.run import Selection, run_units
from sweet_rl.runs.run_state import RunState, note_call
from sweet_rl.runs.side_by_side import SideBySide
from sweet_rl.runs.stages import STAGES, Unit, units_of
from sweet_rl.runs.unit_processes import UnitProcesses, visible_gpus
from sweet_rl.sampling.samplers import SamplerName
from sweet_rl.sampling.wishes import SamplingWishes
from sweet_rl.task_sets import Surroundings

LINE_SECONDS = 20
"""Between lines about progress, where the output is no terminal."""
SHOWN_FIGURES = (
    *("success", "tests_passed", "best_success", "turns", "learnt", "pairs", "steps", "loss"),
    *("held_out_accuracy", "states", "distinct", "agreement"),
)


commands = typer.Typer(pretty_exceptions_enable=False, add_completion=False)


@commands.command()
def train(  # noqa: PLR0913 - a command's parameters are its options
    stage: Annotated[
        str,
        typer.Argument(
            help="A stage; all; list: what is done; report: tables and pictures; estimate: of the "
            "memory that trainings take; dry-run: a step of each on a tiny random model; export: what "
            "was collected, as ColBench publishes it."
        ),
    ],
    recipe: Annotated[
        Path,
        typer.Option(
            "--recipe",
            "-r",
            help="A YAML file, or the name of one of ours: smoke, tiny, tiny-tuning, paper-8b.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The run's folder; gone on with.")],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change the recipe: actor.rate=2e-4; repeatable."),
    ] = None,
    begin: Annotated[
        str | None, typer.Option("--from", help="With all: from this stage on.")
    ] = None,
    seed: Annotated[
        list[int] | None, typer.Option(help="Of the recipe's seeds this one alone; repeatable.")
    ] = None,
    part: Annotated[
        list[str] | None,
        typer.Option(help="What makes and plays this policy or variant alone; repeatable."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="This unit alone, as list names it: seed-1/critic; repeatable."),
    ] = None,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", min=1, help="Units at once, spread over the GPUs.")
    ] = 1,
    seconds: Annotated[
        float | None,
        typer.Option(min=1, help="End after so long, with status 3; the same command goes on."),
    ] = None,
    redo: Annotated[
        bool, typer.Option("--redo", help="Do anew what was done with other settings.")
    ] = False,
    base: Annotated[
        Path | None, typer.Option(help="The base model's folder, instead of the recipe's.")
    ] = None,
    sampler: Annotated[
        SamplerName, typer.Option(help="auto: vLLM where it is installed, else transformers.")
    ] = SamplerName.AUTO,
    vllm: Annotated[
        str | None,
        typer.Option(help="The command of vLLM's API server, if it has its own environment."),
    ] = None,
    endpoint: Annotated[
        list[str] | None,
        typer.Option(help="A running endpoint that takes adapters (…/v1); repeatable."),
    ] = None,
    endpoint_model: Annotated[str, typer.Option(help="Their name of the base.")] = "base",
    gpus: Annotated[int, typer.Option(min=1, help="GPUs that train together.")] = 1,
    data: Annotated[
        Path | None, typer.Option(envvar="MEMSERVER_DATA", help="The folder of published tasks.")
    ] = None,
    human_url: Annotated[
        str | None, typer.Option(help="An endpoint whose model plays the human (…/v1).")
    ] = None,
    human_key: Annotated[str | None, typer.Option(envvar="MEMSERVER_HUMAN_API_KEY")] = None,
    disposable: Annotated[
        bool,
        typer.Option(
            "--disposable",
            help="This machine is thrown away: run code even where it can't be kept from files.",
        ),
    ] = False,
) -> None:
    """Train a policy by SWEET-RL and its baselines, and compare them."""
    deadline = Deadline.after(seconds)
    found = load_recipe(find_recipe(recipe), _pairs(set_ or ()))
    units = units_of(found)
    telling = {
        "list": lambda: _list(found, units, out),
        "report": lambda: report(found, out),
        "export": lambda: console.print(f"{export(found, out, data)}"),
        "estimate": lambda: _estimate(found, base, None),
        "dry-run": lambda: _estimate(found, base, out),
    }
    if stage in telling:
        telling[stage]()
        return
    if jobs > 1 and gpus > 1:
        raise InvalidInput(
            "--jobs and --gpus can't both be more than 1.",
            hint="Several units at once, or several GPUs for each training.",
        )
    wanted = _selection(stage, begin, found, seed or (), part or (), only or ())
    folder, place = _base(base, found).resolve(), out.resolve()
    shared = visible_gpus() if jobs > 1 else ()
    with ExitStack() as stack:
        wishes = SamplingWishes(sampler, vllm, endpoint or (), endpoint_model, shared)
        bench = Bench(
            found,
            place,
            folder,
            wishes.source(found, folder, place, deadline, stack),
            Surroundings(
                data,
                Endpoint(human_url, human_key or "", title="simulated human's endpoint")
                if human_url
                else None,
                disposable,
            ),
            deadline,
            _shows,
            gpus,
        )
        _begin(out, found, stage)
        options = [
            *("-r", f"{find_recipe(recipe)}", "-o", f"{place}", "--base", f"{folder}"),
            *("--sampler", sampler.value, "--endpoint-model", endpoint_model),
            *(word for each in set_ or () for word in ("--set", each)),
        ]
        side_by_side = SideBySide(
            bench, UnitProcesses(options, bench, shared, jobs), _tell, jobs, max(1, len(shared))
        )
        run = partial(run_units, bench=bench, told=_tell) if jobs == 1 else side_by_side.run
        try:
            done = run(units, wanted, redo=redo)
        except OutOfTime as error:
            console.print(f"{error.message}\n{error.hint}")
            raise typer.Exit(EXIT_STATUS) from error
        console.print(f"{out}: all done that was asked for ({len(done)} now).")
    if stage == "all" and not only:
        report(found, out)


def report(recipe: Recipe, out: Path) -> None:
    results = gather(recipe, out)
    write_results(results, out / "report")
    path = write_report(results, out / "report")
    for table in results.tables:
        print_table(
            ("policy", "seeds", "success", "tests passed", "turns", "answer characters"),
            [tuple(row) for row in rows_of(table)],
            title=title_of(table),
        )
    console.print(f"{path}")


def _list(recipe: Recipe, units: Sequence[Unit], out: Path) -> None:
    state = RunState(out)
    print_table(
        ("unit", "state", "seconds", "figures"),
        [_row(state, unit) for unit in units],
        sentences=("figures",),
        title=recipe.name,
    )


def _row(state: RunState, unit: Unit) -> Sequence[str]:
    spent = f"{state.seconds(unit):.0f}"
    if state.is_outdated(unit):
        return unit.path, "other settings", spent, ""
    figures = state.figures(unit)
    if figures is not None:
        return unit.path, "done", spent, _short(figures)
    return unit.path, "begun" if state.seconds(unit) > 0 else "to do", spent, ""


def _estimate(recipe: Recipe, base: Path | None, out: Path | None) -> None:
    _quiet()
    from sweet_rl.estimate import ARCHITECTURES, GB, dry_run, estimate  # noqa: PLC0415

    known = ARCHITECTURES / recipe.base.lower().removesuffix("-instruct")
    architecture = known if base is None and known.is_dir() else _base(base, recipe)
    if out is not None:
        for stage, figures in dry_run(recipe, architecture, out / "dry-run").items():
            console.print(f"{stage}: {_short(figures)}")
        return
    parts = ("weights", "adapter", "activations", "attention", "head", "total")
    title = f"GB on each GPU, every sequence as long as the window ({recipe.sampling.window})"
    rows = [
        (
            memory.load.stage,
            str(memory.load.rows),
            *(f"{getattr(memory, part) / GB:.1f}" for part in parts),
        )
        for memory in estimate(recipe, architecture)
    ]
    print_table(("stage", "sequences", *parts), rows, title=title)


def _selection(
    stage: str,
    begin: str | None,
    recipe: Recipe,
    seeds: Sequence[int],
    parts: Sequence[str],
    only: Sequence[str],
) -> Selection:

    names = {name: name for name in STAGES}
    for asked in (stage, begin):
        if asked is not None and asked not in {*names, "all"}:
            raise InvalidInput(
                f"There is no stage {asked}.",
                hint=f"There are: {', '.join(names)}; and all, list, report, estimate, dry-run, export.",
            )
    if unknown := set(seeds) - set(recipe.seeds):
        raise InvalidInput(f"The recipe has no seed {min(unknown)}.")
    return Selection(
        () if stage == "all" else (names[stage],),  # type: ignore[index]
        names[begin] if begin and begin != "all" else None,  # type: ignore[index]
        tuple(seeds),
        tuple(parts),
        tuple(only),
    )


def _base(told: Path | None, recipe: Recipe) -> Path:
    tried = [told] if told else [Path(recipe.base), EnginePaths(Settings().home).of(recipe.base)]
    for folder in tried:
        if (folder / "config.json").is_file():
            return folder
    raise SetupError(
        f"There is no model in {' or '.join(map(str, tried))}.",
        hint="Name the folder of one by --base, or run `memserver engine install`.",
    )


def _begin(out: Path, recipe: Recipe, stage: str) -> None:
    note_call(out, recipe.model_dump(mode="json"), stage)
    _quiet()


def _quiet() -> None:
    warnings.filterwarnings("ignore", category=FutureWarning)
    try:
        from transformers.utils.logging import disable_progress_bar  # noqa: PLC0415 - heavy
    except ImportError:
        return
    disable_progress_bar()  # type: ignore[no-untyped-call]


def _tell(unit: Unit, figures: JsonObject, seconds: float) -> None:
    console.print(f"{unit.path}: done in {seconds:.0f} s. {_short(figures)}")


def _short(figures: JsonObject) -> str:
    flat = {name: value for name, value in figures.items() if not isinstance(value, dict)}
    for name, inner in figures.items():
        if isinstance(inner, dict):
            flat |= {f"{name}.{key}": value for key, value in inner.items()}
    kept = {name: value for name, value in flat.items() if name.rpartition(".")[2] in SHOWN_FIGURES}
    return ", ".join(f"{name} {_number(value)}" for name, value in kept.items())


def _number(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


@contextmanager
def _shows(title: str) -> Iterator[Callable[[int, int], None]]:
    if console.is_terminal:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=console) as bars:
            bar = bars.add_task(title, total=None)
            yield lambda done, total: bars.update(bar, completed=done, total=total)
        return
    lines = _Lines(title)
    yield lines.tell


@dataclass
class _Lines:
    title: str
    last: float = 0.0

    def tell(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self.last >= LINE_SECONDS or done == total:
            self.last = now
            console.print(f"{self.title}: {done} of {total}")


def _pairs(told: Sequence[str]) -> dict[str, str]:
    found = {}
    for each in told:
        name, equals, value = each.partition("=")
        if not equals:
            raise InvalidInput(f"--set {each} must be NAME=VALUE.")
        found[name] = value
    return found
