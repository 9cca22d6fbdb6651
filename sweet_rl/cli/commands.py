"""The command `train`: SWEET-RL and its baselines, stage by stage or all, from a recipe."""

import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import typer

from memserver.cli.console import console, print_table
from memserver.cli.declaring import command_of
from memserver.errors import InvalidInput, SetupError
from memserver.local.engine.paths import EnginePaths
from memserver.messages import JsonObject
from memserver.settings import Settings
from sweet_rl.cli.options import TrainOptions
from sweet_rl.progress import show_progress
from sweet_rl.recipe import Recipe
from sweet_rl.resumable import EXIT_STATUS, Deadline, OutOfTime
from sweet_rl.runs.context import RunContext
from sweet_rl.runs.gate import run_gate
from sweet_rl.runs.parallel import ParallelRunner, UnitLauncher, visible_gpus
from sweet_rl.runs.play_stages import export
from sweet_rl.runs.report import HEAD, rows_of, title_of, write_report
from sweet_rl.runs.results import gather, write_results
from sweet_rl.runs.run import OnDone, Selection, run_units
from sweet_rl.runs.run_state import RunState, note_call
from sweet_rl.runs.units import STAGES, Stage, Unit, units_of

ARCHITECTURES = Path(__file__).parents[1] / "architectures"
SHOWN_FIGURES = (
    *("success", "tests_passed", "best_success", "turns", "learnt", "pairs", "steps", "loss"),
    *("held_out_accuracy", "states", "distinct", "agreement"),
)


def train(given: TrainOptions) -> None:
    deadline, recipe = Deadline.after(given.seconds), given.changed_recipe()
    if act := _WITHOUT_RUNNING.get(given.stage):
        act(recipe, given)
        return
    given.check_gpus()
    wanted, base = _select(given, recipe), _base(given.base, recipe).resolve()
    gpus, out = visible_gpus() if given.jobs > 1 else (), given.out.resolve()
    environment = given.environment
    with ExitStack() as stack:
        source = given.sampling(gpus).source(recipe, base, out, deadline, stack)
        context = RunContext(
            recipe, out, base, source, environment, deadline, show_progress, given.gpus
        )
        note_call(given.out, recipe.model_dump(mode="json"), given.stage)
        launcher = UnitLauncher(given.of_unit(base), context, gpus, given.jobs)
        try:
            _run_stages(given, wanted, launcher)
        except OutOfTime as error:
            console.print(f"{error.message}\n{error.hint}")
            raise typer.Exit(EXIT_STATUS) from error
    if given.stage == "all" and not given.only:
        report(recipe, given)


commands = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
commands.command(help="Train a policy by SWEET-RL and its baselines, and compare them.")(
    command_of(TrainOptions, train)
)


def _run_stages(given: TrainOptions, wanted: Selection, launcher: UnitLauncher) -> None:
    if given.stage == "gate":
        path = run_gate(launcher.context, partial(_run, launcher=launcher, redo=given.redo))
        console.print(path.read_text(encoding="utf-8"))
    else:
        done = _run(wanted, _unseen, launcher=launcher, redo=given.redo)
        console.print(f"{given.out}: all done that was asked for ({len(done)} now).")


def _run(wanted: Selection, then: OnDone, *, launcher: UnitLauncher, redo: bool) -> list[Unit]:
    def on_done(unit: Unit, figures: JsonObject, seconds: float) -> None:
        _print_done(unit, figures, seconds)
        then(unit, figures, seconds)

    _quiet()
    context = launcher.context
    units = units_of(context.recipe)
    if launcher.jobs > 1:
        return ParallelRunner(context, launcher, on_done).run(units, wanted, redo=redo)
    return run_units(units, wanted, context, on_done, redo=redo)


def _unseen(*_: object) -> None: ...


def _select(given: TrainOptions, recipe: Recipe) -> Selection:
    stages = () if given.stage in {"all", "gate"} else (_stage(given.stage),)
    seeds, begin = tuple(given.seed or ()), given.begin
    if unknown := set(seeds) - set(recipe.seeds):
        raise InvalidInput(f"The recipe has no seed {min(unknown)}.")
    first = _stage(begin) if begin and begin != "all" else None
    return Selection(stages, first, seeds, tuple(given.part or ()), tuple(given.only or ()))


def report(recipe: Recipe, given: TrainOptions) -> None:
    results, folder = gather(recipe, given.out), given.out / "report"
    write_results(results, folder)
    path = write_report(results, folder)
    for table in results.tables:
        print_table(HEAD, [tuple(row) for row in rows_of(table)], title=title_of(table))
    console.print(f"{path}")


def _list(recipe: Recipe, given: TrainOptions) -> None:
    state = RunState(given.out)
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


def _estimate(recipe: Recipe, given: TrainOptions) -> None:
    _quiet()
    from sweet_rl.estimate import GB, estimate  # noqa: PLC0415

    parts = ("weights", "trained", "activations", "attention", "head", "total")
    rows = [
        (
            memory.load.stage,
            str(memory.load.rows),
            *(f"{getattr(memory, part) / GB:.1f}" for part in parts),
        )
        for memory in estimate(recipe, _architecture(recipe, given.base))
    ]
    title = f"GB on each GPU, every sequence as long as the window ({recipe.sampling.window})"
    print_table(("stage", "sequences", *parts), rows, title=title)


def _dry_run(recipe: Recipe, given: TrainOptions) -> None:
    _quiet()
    from sweet_rl.dry_run import dry_run  # noqa: PLC0415

    architecture = _architecture(recipe, given.base)
    for stage, figures in dry_run(recipe, architecture, given.out / "dry-run").items():
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


def _export(recipe: Recipe, given: TrainOptions) -> None:
    console.print(f"{export(recipe, given.out, given.data)}")


_WITHOUT_RUNNING: dict[str, Callable[[Recipe, TrainOptions], None]] = {
    "list": _list,
    "report": report,
    "export": _export,
    "estimate": _estimate,
    "dry-run": _dry_run,
}
