"""The command `train`: SWEET-RL and its baselines, stage by stage or all, from a recipe."""

import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from memserver.cli.console import console, print_table
from memserver.errors import InvalidInput, SetupError
from memserver.local.engine.paths import EnginePaths
from memserver.messages import JsonObject
from memserver.openai_http.endpoint import Endpoint
from memserver.settings import Settings
from sweet_rl.progress import show_progress
from sweet_rl.recipe import Recipe, find_recipe, load_recipe
from sweet_rl.resumable import EXIT_STATUS, Deadline, OutOfTime
from sweet_rl.runs.context import RunContext
from sweet_rl.runs.gate import run_gate
from sweet_rl.runs.parallel import ParallelRunner, UnitLauncher, visible_gpus
from sweet_rl.runs.play_stages import export
from sweet_rl.runs.report import HEAD, rows_of, title_of, write_report
from sweet_rl.runs.results import gather, write_results
from sweet_rl.runs.run import Selection, run_units
from sweet_rl.runs.run_state import RunState, note_call
from sweet_rl.runs.units import STAGES, Stage, Unit, units_of
from sweet_rl.sampling.sources import SamplerName, SamplingOptions
from sweet_rl.task_sets import Environment

ARCHITECTURES = Path(__file__).parents[1] / "architectures"
SHOWN_FIGURES = (
    *("success", "tests_passed", "best_success", "turns", "learnt", "pairs", "steps", "loss"),
    *("held_out_accuracy", "states", "distinct", "agreement"),
)


commands = typer.Typer(pretty_exceptions_enable=False, add_completion=False)

StageName = Annotated[
    str,
    typer.Argument(
        help="A stage; all; gate: compare critics with and without the hidden reference; list: what is done; report: tables and pictures; estimate: of the memory that trainings "
        "take; dry-run: a step of each on a tiny random model; export: what was collected, as ColBench publishes it."
    ),
]
RecipeFile = Annotated[
    Path,
    typer.Option(
        *("--recipe", "-r"),
        help="A YAML file, or the name of one of ours: smoke, tiny, tiny-tuning, colbench-long, colbench-long-gate, paper-8b.",
    ),
]
Out = Annotated[
    Path, typer.Option("--out", "-o", help="The run's folder; one that is there is resumed.")
]
Changes = Annotated[
    list[str] | None, typer.Option("--set", help="Change the recipe: actor.rate=2e-4; repeatable.")
]
Begin = Annotated[str | None, typer.Option("--from", help="With all: from this stage on.")]
Seeds = Annotated[
    list[int] | None, typer.Option(help="Of the recipe's seeds this one alone; repeatable.")
]
Parts = Annotated[
    list[str] | None,
    typer.Option(help="What makes and plays this policy or variant alone; repeatable."),
]
Only = Annotated[
    list[str] | None,
    typer.Option(help="This unit alone, as list names it: seed-1/critic; repeatable."),
]
Jobs = Annotated[
    int, typer.Option("--jobs", "-j", min=1, help="Units at once, spread over the GPUs.")
]
Seconds = Annotated[
    float | None,
    typer.Option(min=1, help="End after so long, with status 3; the same command resumes."),
]
Redo = Annotated[bool, typer.Option("--redo", help="Do again what was done with other settings.")]
Full = Annotated[
    bool,
    typer.Option("--full", help="Train all weights after the warm start, as the recipe's `full`."),
]
Base = Annotated[
    Path | None, typer.Option(help="The base model's folder, instead of the recipe's.")
]
SamplerOption = Annotated[
    SamplerName, typer.Option(help="auto: vLLM where it is installed, else transformers.")
]
Vllm = Annotated[
    str | None,
    typer.Option(help="The command of vLLM's API server, if it has its own environment."),
]
Endpoints = Annotated[
    list[str] | None,
    typer.Option(help="A running endpoint that takes adapters (…/v1); repeatable."),
]
EndpointModel = Annotated[str, typer.Option(help="Their name of the base.")]
Gpus = Annotated[int, typer.Option(min=1, help="GPUs that train together.")]
Data = Annotated[
    Path | None, typer.Option(envvar="MEMSERVER_DATA", help="The folder of published tasks.")
]
HumanUrl = Annotated[
    str | None, typer.Option(help="An endpoint whose model plays the human (…/v1).")
]
HumanKey = Annotated[str | None, typer.Option(envvar="MEMSERVER_HUMAN_API_KEY")]
Disposable = Annotated[
    bool,
    typer.Option(
        "--disposable",
        help="This machine is thrown away: run code even where it can't be kept from files.",
    ),
]


@commands.command()
def train(  # noqa: PLR0913 - a command's parameters are its options
    stage: StageName,
    recipe: RecipeFile,
    out: Out,
    set_: Changes = None,
    begin: Begin = None,
    seed: Seeds = None,
    part: Parts = None,
    only: Only = None,
    jobs: Jobs = 1,
    seconds: Seconds = None,
    redo: Redo = False,
    full: Full = False,
    base: Base = None,
    sampler: SamplerOption = SamplerName.AUTO,
    vllm: Vllm = None,
    endpoint: Endpoints = None,
    endpoint_model: EndpointModel = "base",
    gpus: Gpus = 1,
    data: Data = None,
    human_url: HumanUrl = None,
    human_key: HumanKey = None,
    disposable: Disposable = False,
) -> None:
    """Train a policy by SWEET-RL and its baselines, and compare them."""
    deadline, found = Deadline.after(seconds), load_recipe(find_recipe(recipe), _pairs(set_ or ()))
    found = found.in_full() if full else found
    if stage in _WITHOUT_RUNNING:
        _WITHOUT_RUNNING[stage](found, out, base, data)
        return
    _check_gpus(jobs, gpus)
    chosen = Selection((), None, tuple(seed or ()), tuple(part or ()), tuple(only or ()))
    wanted = _select(stage, begin, found, chosen)
    folder, place = _base(base, found).resolve(), out.resolve()
    shared = visible_gpus() if jobs > 1 else ()
    environment = Environment(data, _human(human_url, human_key), disposable)
    with ExitStack() as stack:
        sampling = SamplingOptions(sampler, vllm, endpoint or (), endpoint_model, shared)
        source = sampling.source(found, folder, place, deadline, stack)
        context = RunContext(
            found, place, folder, source, environment, deadline, show_progress, gpus
        )
        note_call(out, found.model_dump(mode="json"), stage)
        options = [
            *("-r", f"{find_recipe(recipe)}", "-o", f"{place}", "--base", f"{folder}"),
            *("--sampler", sampler.value, "--endpoint-model", endpoint_model),
            *(("--full",) if full else ()),
            *(word for each in set_ or () for word in ("--set", each)),
        ]
        launcher = UnitLauncher(options, context, shared, jobs)
        try:
            if stage == "gate":
                path = run_gate(context, lambda units: _run(context, units, launcher, redo=redo))
                console.print(path.read_text(encoding="utf-8"))
            else:
                done = _run(context, wanted, launcher, redo=redo)
                console.print(f"{out}: all done that was asked for ({len(done)} now).")
        except OutOfTime as error:
            console.print(f"{error.message}\n{error.hint}")
            raise typer.Exit(EXIT_STATUS) from error
    if stage == "all" and not only:
        report(found, out)


def _check_gpus(jobs: int, gpus: int) -> None:
    if jobs > 1 and gpus > 1:
        raise InvalidInput(
            "--jobs and --gpus can't both be more than 1.",
            hint="Several units at once, or several GPUs for each training.",
        )


def _run(
    context: RunContext, wanted: Selection, launcher: UnitLauncher, *, redo: bool
) -> list[Unit]:
    _quiet()
    units = units_of(context.recipe)
    if launcher.jobs > 1:
        return ParallelRunner(context, launcher, _print_done).run(units, wanted, redo=redo)
    return run_units(units, wanted, context, _print_done, redo=redo)


def _select(stage: str, begin: str | None, recipe: Recipe, others: Selection) -> Selection:
    stages = () if stage in {"all", "gate"} else (_stage(stage),)
    if unknown := set(others.seeds) - set(recipe.seeds):
        raise InvalidInput(f"The recipe has no seed {min(unknown)}.")
    return replace(others, stages=stages, begin=_stage(begin) if begin and begin != "all" else None)


def _human(url: str | None, key: str | None) -> Endpoint | None:
    return Endpoint(url, key or "", title="simulated human's endpoint") if url else None


def report(recipe: Recipe, out: Path) -> None:
    results = gather(recipe, out)
    write_results(results, out / "report")
    path = write_report(results, out / "report")
    for table in results.tables:
        print_table(HEAD, [tuple(row) for row in rows_of(table)], title=title_of(table))
    console.print(f"{path}")


def _list(recipe: Recipe, out: Path) -> None:
    state = RunState(out)
    print_table(
        ("unit", "state", "seconds", "figures"),
        [_row(state, unit) for unit in units_of(recipe)],
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


def _estimate(recipe: Recipe, base: Path | None) -> None:
    _quiet()
    from sweet_rl.estimate import GB, estimate  # noqa: PLC0415

    parts = ("weights", "trained", "activations", "attention", "head", "total")
    rows = [
        (
            memory.load.stage,
            str(memory.load.rows),
            *(f"{getattr(memory, part) / GB:.1f}" for part in parts),
        )
        for memory in estimate(recipe, _architecture(recipe, base))
    ]
    title = f"GB on each GPU, every sequence as long as the window ({recipe.sampling.window})"
    print_table(("stage", "sequences", *parts), rows, title=title)


def _dry_run(recipe: Recipe, base: Path | None, out: Path) -> None:
    _quiet()
    from sweet_rl.dry_run import dry_run  # noqa: PLC0415

    for stage, figures in dry_run(recipe, _architecture(recipe, base), out / "dry-run").items():
        console.print(f"{stage}: {_short(figures)}")


def _architecture(recipe: Recipe, base: Path | None) -> Path:
    """A folder whose config.json describes the base: ours where there is one, else the base itself."""
    known = ARCHITECTURES / recipe.base.lower().removesuffix("-instruct")
    return known if base is None and known.is_dir() else _base(base, recipe)


def _stage(name: str) -> Stage:
    for stage in STAGES:
        if stage == name:
            return stage
    raise InvalidInput(
        f"There is no stage {name}.",
        hint=f"There are: {', '.join(STAGES)}; and all, gate, list, report, estimate, dry-run, export.",
    )


def _base(named: Path | None, recipe: Recipe) -> Path:
    tried = [named] if named else [Path(recipe.base), EnginePaths(Settings().home).of(recipe.base)]
    for folder in tried:
        if (folder / "config.json").is_file():
            return folder
    raise SetupError(
        f"There is no model in {' or '.join(map(str, tried))}.",
        hint="Name the folder of one by --base, or run `memserver engine install`.",
    )


def _quiet() -> None:
    warnings.filterwarnings("ignore", category=FutureWarning)
    try:
        from transformers.utils.logging import disable_progress_bar  # noqa: PLC0415 - heavy
    except ImportError:
        return
    disable_progress_bar()  # type: ignore[no-untyped-call]


def _print_done(unit: Unit, figures: JsonObject, seconds: float) -> None:
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


def _pairs(given: Sequence[str]) -> dict[str, str]:
    found = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals:
            raise InvalidInput(f"--set {each} must be NAME=VALUE.")
        found[name] = value
    return found


_WITHOUT_RUNNING: dict[str, Callable[[Recipe, Path, Path | None, Path | None], None]] = {
    "list": lambda recipe, out, _base, _data: _list(recipe, out),
    "report": lambda recipe, out, _base, _data: report(recipe, out),
    "export": lambda recipe, out, _base, data: console.print(f"{export(recipe, out, data)}"),
    "estimate": lambda recipe, _out, base, _data: _estimate(recipe, base),
    "dry-run": lambda recipe, out, base, _data: _dry_run(recipe, base, out),
}
