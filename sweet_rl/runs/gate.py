"""The gate before any actor is trained: does the hidden reference help a critic to order messages as the oracle does?

The critics of the recipe's variants learn from pairs of collaborations, as SWEET-RL's does, with the reference and without,
each from so many as `critic.most` says. The policy that all start from plays validation tasks, and draws several next
messages in the states of some. The oracle's order of these is exact: each question is put to the human, whose answers
are certain, and is worth what the best play after it comes to (see `oracle`). The agreement is the share of the pairs of
messages of one state, of those that the oracle tells apart, that a critic orders alike.

Smaller sizes come first, so a run that ends early has a whole table of these.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from memserver.errors import InvalidInput, SetupError
from memserver_evals.colbench.backend.rules import gives_answer
from memserver_evals.report.style import COLOURS, as_png, make_figure
from memserver_evals.runs.run_folder import write_whole
from memserver_evals.scoring.statistics import Difference, Estimate, difference, estimate
from sweet_rl.oracle import orders, values_of
from sweet_rl.rollouts import Draws, Policy, Rollouts, draw_candidates, figures_of, roll_out
from sweet_rl.runs.context import CANDIDATES, RunContext, check_finished
from sweet_rl.runs.rank_stage import score_plan
from sweet_rl.runs.run import Selection
from sweet_rl.runs.run_state import RunState
from sweet_rl.runs.units import Unit, units_of
from sweet_rl.sampling.samplers import seed_of
from sweet_rl.task_sets import open_task
from sweet_rl.trajectories import Ranked, Trajectory, read_file

FOLDER, PLAYS = "gate", "plays.jsonl"
ENOUGH = 0.05
"""What the reference must add for a task to be fit."""
_PLAYERS = {"policy": "that policy", "scripted": "the warm start's script", "file": "others"}
Work = Callable[[Selection], object]
"""Does units, or resumes them. Raises OutOfTime."""


@dataclass(frozen=True)
class Arm:
    """A critic that is compared."""

    name: str  # of its variant
    most: int
    hidden: bool
    critic: Unit

    def file(self, folder: Path) -> Path:
        return folder / f"{self.name}.jsonl"


@dataclass(frozen=True)
class Size:
    """What came of one number of pairs."""

    most: int
    pairs: int  # that there were
    steps: int
    seconds: float  # of both trainings
    with_hidden: Estimate  # agreement
    without: Estimate
    added: Difference
    added_to_questions: Difference  # the same for pairs of messages that ask

    @property
    def is_fit(self) -> bool:
        return self.added.estimate.mean >= ENOUGH and self.added.estimate.low > 0


def run_gate(context: RunContext, work: Work) -> Path:
    """Do what is missing, and write the table and the picture, also where the time is over first."""
    arms, folder, seed = arms_of(context), context.out / FOLDER, context.recipe.seeds[:1]
    try:
        work(Selection(stages=("warm-start", "collect"), seeds=seed))
        draw_states(context, arms[0].critic.needs.get("begin"))
        for size in sorted({arm.most for arm in arms}):
            own = [arm for arm in arms if arm.most == size]
            work(Selection(only=tuple(arm.critic.path for arm in own)))
            for arm in own:
                _score(arm, context)
    finally:
        if (folder / PLAYS).exists():
            write_gate(context)
    return folder / "gate.md"


def arms_of(context: RunContext) -> list[Arm]:
    recipe, units = context.recipe, units_of(context.recipe)
    arms = []
    for name in recipe.variants:
        critic = recipe.variant(name).critic
        if critic.most is not None:
            [unit] = Selection(stages=("critic",), seeds=recipe.seeds[:1], parts=(name,)).of(units)
            arms.append(Arm(name, critic.most, critic.hidden, unit))
    sizes = {hidden: {arm.most for arm in arms if arm.hidden is hidden} for hidden in (True, False)}
    if not arms or sizes[True] != sizes[False]:
        raise InvalidInput(
            f"{recipe.name} has no critics to compare.",
            hint="Variants with critic.most, of each number one with critic.hidden and one without.",
        )
    return arms


def draw_states(context: RunContext, begin: Unit | None) -> None:
    """Play validation tasks with the policy that all start from, and draw messages in the states of some."""
    recipe, folder = context.recipe, context.out / FOLDER
    tasks, how = context.tasks("validation"), recipe.gate
    if (folder / CANDIDATES).exists():
        return

    async def draw() -> None:
        async with (
            context.sampler(context.adapter(begin)) as sampler,
            open_task(tasks, context.environment) as task,
        ):
            path = folder / PLAYS
            if not path.exists():
                policy = Policy("gate", sampler, context.sampling, seed_of("gate"))
                with context.shows("plays") as progress:
                    rolls = Rollouts(1, recipe.sampling.at_once, context.deadline, progress)
                    await roll_out(task, tasks.examples[: how.plays], lambda _: policy, path, rolls)
            plays = read_file(path, Trajectory)[: how.states_of]
            with context.shows("candidates") as progress:
                count, at_once = recipe.candidates.count, recipe.sampling.at_once
                draws = Draws(
                    count,
                    context.sampling,
                    seed_of("gate candidates"),
                    max(1, at_once // count),
                    context.deadline,
                    progress,
                )
                await draw_candidates(plays, sampler, folder / CANDIDATES, draws)

    asyncio.run(draw())


def _score(arm: Arm, context: RunContext) -> None:
    from sweet_rl.scores import rank  # noqa: PLC0415 - torch

    plan = score_plan(context.recipe.variant(arm.name), context, arm.critic)
    folder = context.out / FOLDER
    with context.shows(f"agreement of {arm.name}") as progress:
        figures = rank(
            plan, folder / CANDIDATES, arm.file(folder), progress, seconds=context.deadline.left
        )
    check_finished(figures, arm.critic)


def sizes_of(context: RunContext) -> list[Size]:
    """Of the numbers of pairs for which both critics have scored all states."""
    arms, folder, state = arms_of(context), context.out / FOLDER, RunState(context.out)
    found = []
    for most in sorted({arm.most for arm in arms}):
        hidden, blind = (
            next(arm for arm in arms if arm.most == most and arm.hidden is seen)
            for seen in (True, False)
        )
        done = [state.figures(arm.critic) for arm in (hidden, blind)]
        if None in done or not all(_is_scored(arm, folder) for arm in (hidden, blind)):
            continue
        one, other = (_orders(arm, context, asking=False) for arm in (hidden, blind))
        asks, blindly = (_orders(arm, context, asking=True) for arm in (hidden, blind))
        figures, name = done[0] or {}, f"gate {most}"
        found.append(
            Size(
                most,
                int(figures.get("pairs", 0)),
                int(figures.get("steps", 0)),
                state.seconds(hidden.critic) + state.seconds(blind.critic),
                estimate(one.values, one.nouns, name=f"{name} hidden"),
                estimate(other.values, other.nouns, name=f"{name} blind"),
                difference(other.values, one.values, one.nouns, name=name),
                difference(blindly.values, asks.values, asks.nouns, name=f"{name} asks"),
            )
        )
    return found


@dataclass(frozen=True)
class _Orders:
    """Of each pair whether it is ordered as by the oracle (1, .5 for a tie, 0), and of which noun it is."""

    values: list[float]
    nouns: list[str]


def _orders(arm: Arm, context: RunContext, *, asking: bool) -> _Orders:
    slots, values, nouns = context.tasks("validation").slots, list[float](), list[str]()
    for record in read_file(arm.file(context.out / FOLDER), Ranked):
        both = zip(record.candidates, record.advantages, strict=True)
        kept = [(text, score) for text, score in both if not (asking and gives_answer(text))]
        truth = values_of(slots[record.task], record.messages, (text for text, _ in kept))
        found = list(orders(truth, [score for _, score in kept]))
        values += found
        nouns += [record.kind] * len(found)
    return _Orders(values, nouns)


def _is_scored(arm: Arm, folder: Path) -> bool:
    path = arm.file(folder)
    return path.exists() and _lines(path) == _lines(folder / CANDIDATES)


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def write_gate(context: RunContext) -> Sequence[Size]:
    """gate.md, gate.json and, with something to show, gate.png in the gate's folder."""
    folder, sizes = context.out / FOLDER, sizes_of(context)
    plays = read_file(folder / PLAYS, Trajectory)
    base = figures_of(plays)
    solved = estimate(
        [float(each.reward == 1) for each in plays], [each.kind for each in plays], name="gate base"
    )
    write_whole(folder / "gate.md", "\n".join(_table(context, sizes, solved)) + "\n")
    found = {"base": base, "sizes": [asdict(size) for size in sizes]}
    write_whole(folder / "gate.json", json.dumps(found, indent=1) + "\n")
    if sizes:
        _draw(sizes, folder / "gate.png")
    return sizes


def _table(context: RunContext, sizes: Sequence[Size], solved: Estimate) -> Iterator[str]:
    recipe = context.recipe
    design = getattr(recipe.tasks, "design", None)
    yield f"# The gate: {recipe.name}, {design or 'short functions'}\n"
    yield f"The policy that all start from solves {solved.shown()} of {solved.count} validation tasks."
    yield f"The critics learnt from plays by {_PLAYERS[recipe.collect.by]}."
    yield "Agreement with the oracle within states; 95 % intervals clustered by noun.\n"
    yield "| pairs | steps | s | with the reference | without | added | added, of two questions |"
    yield "|---|---|---|---|---|---|---|"
    for size in sizes:
        yield (
            f"| {size.pairs} | {size.steps} | {size.seconds:.0f} | {size.with_hidden.shown()} | {size.without.shown()} | "
            f"{size.added.estimate.shown(sign=True)} | {size.added_to_questions.estimate.shown(sign=True)} |"
        )
    missing = sorted({arm.most for arm in arms_of(context)} - {size.most for size in sizes})
    if missing:
        rate = (
            f" Per pair it took {sizes[-1].seconds / max(1, sizes[-1].pairs):.2f} s."
            if sizes
            else ""
        )
        yield f"\nNot done yet: {', '.join(map(str, missing))} pairs.{rate}"
    fit = [str(size.pairs) for size in sizes if size.is_fit]
    at = f"fit at {', '.join(fit)} pairs" if fit else "not fit so far" if missing else "not fit"
    yield f"\nThe task is {at}: the reference must add {ENOUGH} or more, its interval above 0."


def _draw(sizes: Sequence[Size], path: Path) -> None:
    """A picture; where matplotlib isn't installed none, and the same command draws it elsewhere."""
    try:
        picture = make_figure(figsize=(6, 4), layout="constrained")
    except SetupError:
        return
    axes = picture.subplots()
    lines = (
        ("with the reference", [size.with_hidden for size in sizes]),
        ("without", [size.without for size in sizes]),
    )
    for number, (label, values) in enumerate(lines):
        places = [size.pairs * (1 + 0.03 * number) for size in sizes]
        means = [value.mean for value in values]
        ends = [
            [value.mean - value.low for value in values],
            [value.high - value.mean for value in values],
        ]
        axes.errorbar(
            places, means, ends, marker="o", capsize=3, label=label, color=COLOURS[number]
        )
    axes.set(xscale="log", xlabel="pairs of collaborations", ylabel="agreement with the oracle")
    axes.grid()
    axes.legend()
    path.write_bytes(as_png(picture))
