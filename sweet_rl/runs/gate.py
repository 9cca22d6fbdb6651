"""The gate before any actor is trained: does the hidden reference help a critic to order messages as the oracle does?

The critics of the recipe's variants learn from pairs of collaborations, as SWEET-RL's does, with the reference and without,
each from so many as `critic.most` says. The policy that all start from plays validation tasks, and draws several next
messages in the states of some. The oracle's order of these is exact: each question is put to the human, whose answers
are certain, and is worth what the best play after it comes to (see `oracle`). The agreement is the share of the pairs of
messages of one state, of those that the oracle tells apart, that a critic orders alike.

All of it is units (`gate-states`, `gate-scores`), so several critics learn side by side, and beside the plays. Smaller sizes
come first, so a run that ends early has a whole table of these.
"""

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
from sweet_rl.rollouts import figures_of
from sweet_rl.runs.context import RANKED, RunContext
from sweet_rl.runs.gate_stages import PLAYS
from sweet_rl.runs.run import OnDone, Selection
from sweet_rl.runs.run_state import RunState
from sweet_rl.runs.units import Unit, units_of
from sweet_rl.trajectories import Ranked, Trajectory, read_file

FOLDER = "gate"
ENOUGH = 0.05
"""What the reference must add for a task to be fit."""
_PLAYERS = {"policy": "that policy", "scripted": "the warm start's script", "file": "others"}
Work = Callable[[Selection, OnDone], object]
"""Does units, or resumes them, and calls the second with each that is done. Raises OutOfTime."""


@dataclass(frozen=True)
class Arm:
    """A critic that is compared."""

    most: int
    hidden: bool
    critic: Unit
    scores: Unit


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
    """Do what is missing, and write the table and the picture: after each critic, and where the time is over first."""
    arms = arms_of(context)

    def look(unit: Unit, *_: object) -> None:
        if unit.stage in {"gate-states", "gate-scores"}:
            write_gate(context)

    needed = {path: None for arm in arms for path in _paths(arm.scores)}
    try:
        work(Selection(only=tuple(needed)), look)
    finally:
        if (states_of(arms).folder(context.out) / PLAYS).exists():
            write_gate(context)
    return context.out / FOLDER / "gate.md"


def _paths(unit: Unit) -> Iterator[str]:
    for needed in unit.needs.values():
        yield from _paths(needed)
    yield unit.path


def states_of(arms: Sequence[Arm]) -> Unit:
    return arms[0].scores.needs["candidates"]


def arms_of(context: RunContext) -> list[Arm]:
    """Smaller sizes first."""
    recipe, arms = context.recipe, list[Arm]()
    for unit in units_of(recipe):
        if unit.stage == "gate-scores":
            critic = recipe.variant(unit.part).critic
            arms.append(Arm(critic.most or 0, critic.hidden, unit.needs["critic"], unit))
    sizes = {hidden: {arm.most for arm in arms if arm.hidden is hidden} for hidden in (True, False)}
    if not arms or sizes[True] != sizes[False]:
        raise InvalidInput(
            f"{recipe.name} has no critics to compare.",
            hint="`gate`, and variants with critic.most, of each number one with critic.hidden and one without.",
        )
    return arms


def sizes_of(context: RunContext) -> list[Size]:
    """Of the numbers of pairs for which both critics have scored all states."""
    arms, state = arms_of(context), RunState(context.out)
    found = []
    for most in sorted({arm.most for arm in arms}):
        hidden, blind = (
            next(arm for arm in arms if arm.most == most and arm.hidden is seen)
            for seen in (True, False)
        )
        if None in [state.figures(arm.scores) for arm in (hidden, blind)]:
            continue
        one, other = (_orders(arm, context, asking=False) for arm in (hidden, blind))
        asks, blindly = (_orders(arm, context, asking=True) for arm in (hidden, blind))
        figures, name = state.figures(hidden.critic) or {}, f"gate {most}"
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
    for record in read_file(arm.scores.folder(context.out) / RANKED, Ranked):
        both = zip(record.candidates, record.advantages, strict=True)
        kept = [(text, score) for text, score in both if not (asking and gives_answer(text))]
        truth = values_of(slots[record.task], record.messages, (text for text, _ in kept))
        found = list(orders(truth, [score for _, score in kept]))
        values += found
        nouns += [record.kind] * len(found)
    return _Orders(values, nouns)


def write_gate(context: RunContext) -> Sequence[Size]:
    """gate.md, gate.json and, with something to show, gate.png in the gate's folder."""
    folder, sizes = context.out / FOLDER, sizes_of(context)
    folder.mkdir(exist_ok=True)
    plays = read_file(states_of(arms_of(context)).folder(context.out) / PLAYS, Trajectory)
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
