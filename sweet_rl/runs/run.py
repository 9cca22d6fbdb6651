"""Runs units in their order, those that aren't done; or says what is done."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from memserver.errors import InvalidInput
from memserver.messages import JsonObject
from sweet_rl.recipe import Recipe
from sweet_rl.runs.context import RunContext
from sweet_rl.runs.gate_stages import gate_scores, gate_states
from sweet_rl.runs.grid import play_grid
from sweet_rl.runs.play_stages import candidates, collect, evaluate
from sweet_rl.runs.rank_stage import rank
from sweet_rl.runs.run_state import RunState
from sweet_rl.runs.train_stages import actor, critic, mdpo, rft, rft_matched, warm_start
from sweet_rl.runs.units import EVALUATED, STAGES, Stage, Unit
from sweet_rl.runs.values import play_values

OnDone = Callable[[Unit, JsonObject, float], None]
"""Is called with a unit that was done now, its figures, and the seconds that it took in all."""
WORK: Mapping[Stage, Callable[[Unit, Path, RunContext], JsonObject]] = {
    "warm-start": warm_start,
    "collect": collect,
    "rft": rft,
    "mdpo": mdpo,
    "critic": critic,
    "candidates": candidates,
    "rank": rank,
    "actor": actor,
    "rft-matched": rft_matched,
    "validate": evaluate,
    "evaluate": evaluate,
    "evaluate-unseen": evaluate,
    "grid": play_grid,
    "values": play_values,
    "gate-states": gate_states,
    "gate-scores": gate_scores,
}
"""Each does a unit in its folder, or resumes it; its figures say what came of it."""


@dataclass(frozen=True, slots=True)
class Selection:
    stages: tuple[Stage, ...] = ()  # these; empty for all
    begin: Stage | None = None  # all from this stage on, in the order of the stages
    seeds: tuple[int, ...] = ()  # these, and what all seeds share; empty for all
    parts: tuple[str, ...] = ()  # what makes and plays these policies alone; empty for all
    only: tuple[str, ...] = ()  # these units, by their folders; empty for all

    def of(self, units: Sequence[Unit]) -> list[Unit]:
        """Those that are wanted, in their order."""
        if unknown := set(self.only) - {unit.path for unit in units}:
            raise InvalidInput(f"The recipe has no {min(unknown)}.", hint="`list` names all units.")
        needed = {unit.path for name in self.parts for unit in _made_for(name, units)}
        return [unit for unit in units if self._has(unit) and (not needed or unit.path in needed)]

    def _has(self, unit: Unit) -> bool:
        return (
            (not self.stages or unit.stage in self.stages)
            and (self.begin is None or STAGES.index(unit.stage) >= STAGES.index(self.begin))
            and (not self.seeds or unit.seed is None or unit.seed in self.seeds)
            and (not self.only or unit.path in self.only)
        )


def _made_for(part: str, units: Sequence[Unit]) -> Iterator[Unit]:
    left = [unit for unit in units if unit.policy == part]
    if not left:
        known = ", ".join(sorted({unit.policy for unit in units if unit.part}))
        raise InvalidInput(f"The recipe has no {part}.", hint=f"It has: {known}.")
    while left:
        unit = left.pop()
        yield unit
        left += unit.needs.values()


def run_units(
    units: Sequence[Unit],
    wanted: Selection,
    context: RunContext,
    on_done: OnDone,
    *,
    redo: bool = False,
) -> list[Unit]:
    """Do what is wanted and not done yet; returns what was done now."""
    state = RunState(context.out)
    to_do = left_of(units, wanted, state, redo=redo)
    if any(samples(unit, context.recipe) for unit in to_do):
        context.source.prepare()
    for unit in to_do:
        context.deadline.check(f"{unit.path} has not begun")
        with state.working_on(unit) as folder:
            figures = WORK[unit.stage](unit, folder, context)
        state.finish(unit, figures)
        on_done(unit, figures, state.seconds(unit))
    return to_do


def left_of(
    units: Sequence[Unit], wanted: Selection, state: RunState, *, redo: bool = False
) -> list[Unit]:
    chosen = wanted.of(units)
    if not chosen:
        raise InvalidInput("Nothing of this recipe is meant by these options.")
    if redo:
        for unit in chosen:
            if state.is_outdated(unit):
                state.forget(unit)
    to_do = [unit for unit in chosen if state.figures(unit) is None]
    _check_needs(to_do, state)
    return to_do


def samples(unit: Unit, recipe: Recipe) -> bool:
    if unit.stage == "collect":
        return recipe.collect.by == "policy"
    stages = {"candidates", "rft-matched", "grid", "values", "gate-states", *EVALUATED}
    return unit.stage in stages


def _check_needs(to_do: Iterable[Unit], state: RunState) -> None:
    coming: set[str] = set()
    for unit in to_do:
        for needed in unit.needs.values():
            if needed.path not in coming and state.figures(needed) is None:
                raise InvalidInput(
                    f"{unit.path} needs {needed.path}, which isn't done.",
                    hint=f"Run `memserver train {needed.stage}` (or all) with the same recipe first.",
                )
        coming.add(unit.path)
