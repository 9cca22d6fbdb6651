"""The stages that train: from trajectories, pairs and candidates to adapters."""

import asyncio
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from memserver.errors import InvalidInput
from memserver.messages import JsonObject
from sweet_rl import rollouts as playing
from sweet_rl.behaviour import judged
from sweet_rl.launching import Plan, trained
from sweet_rl.pairs import is_held_out, successes, trajectory_pairs, turn_pairs
from sweet_rl.plans import PreferencePlan, SftPlan
from sweet_rl.recipe import Preference, Training
from sweet_rl.runs.bench import (
    CANDIDATES,
    EXTRA,
    HELD_OUT,
    LEARNT,
    PAIRS,
    RANKED,
    TRAJECTORIES,
    Bench,
    check_finished,
    collected_by,
)
from sweet_rl.runs.play_work import Plays, sampled, scripted
from sweet_rl.runs.stages import Unit
from sweet_rl.sampling.samplers import seed_of
from sweet_rl.trajectories import Candidates, Pair, Ranked, Trajectory, read_file, write_file


def warm_start(unit: Unit, folder: Path, bench: Bench) -> JsonObject:
    recipe = bench.recipe.warm_start
    assert recipe is not None
    path = folder / TRAJECTORIES
    if not path.exists():
        tasks = bench.tasks("warm-start")
        asyncio.run(scripted(unit, bench, tasks, path, recipe.samples))
    played = read_file(path, Trajectory)
    learnt = successes(played) if recipe.only_solved else played
    return playing.figures_of(played) | _sft(unit, folder, bench, learnt, recipe)


def rft(unit: Unit, folder: Path, bench: Bench) -> JsonObject:
    recipe = bench.recipe.variant(unit.part).rft
    collected = collected_by(unit, bench)
    return _sft(unit, folder, bench, successes(collected), recipe)


def rft_matched(unit: Unit, folder: Path, bench: Bench) -> JsonObject:
    """The same with further plays, that cost as many tokens as SWEET-RL's candidates."""
    recipe = bench.recipe.rft_matched
    assert recipe is not None
    collected = collected_by(unit, bench)
    drawn = read_file(unit.needs["candidates"].folder(bench.out) / CANDIDATES, Candidates)
    samples = extra_samples(collected, drawn)
    path = folder / EXTRA
    plays = [Plays(path, samples, bench.sampling)]
    asyncio.run(sampled(unit, bench, bench.tasks("train"), plays))
    extra = read_file(path, Trajectory)
    figures = {f"extra_{name}": value for name, value in playing.figures_of(extra).items()}
    learnt = [*successes(collected), *successes(extra)]
    return figures | _sft(unit, folder, bench, learnt, recipe)


def extra_samples(collected: Sequence[Trajectory], drawn: Sequence[Candidates]) -> int:
    """How often each task may be played for what the candidates cost, in generated tokens.

    Where what was collected cost none (it was scripted), the agent's messages are counted instead.
    """
    tasks = len({each.task for each in collected})
    cost = sum(each.tokens for each in drawn)
    each = sum(one.tokens for one in collected) / len(collected)
    if not each:
        cost = sum(len(one.candidates) for one in drawn)
        each = sum(one.turns for one in collected) / len(collected)
    return max(1, round(cost / (each * tasks)))


def mdpo(unit: Unit, folder: Path, bench: Bench) -> JsonObject:
    recipe = bench.recipe.variant(unit.part).mdpo
    pairs = trajectory_pairs(collected_by(unit, bench), every_success=recipe.every_success)
    return _preferences(unit, folder, bench, pairs, recipe)


def critic(unit: Unit, folder: Path, bench: Bench) -> JsonObject:
    recipe = bench.recipe.variant(unit.part).critic
    pairs = trajectory_pairs(collected_by(unit, bench), every_success=recipe.every_success)
    held_out = [pair for pair in pairs if is_held_out(pair.task, recipe.held_out)]
    learnt = [pair for pair in pairs if not is_held_out(pair.task, recipe.held_out)]
    return _preferences(
        unit, folder, bench, learnt, recipe, hidden=recipe.hidden, held_out=held_out
    )


def actor(unit: Unit, folder: Path, bench: Bench) -> JsonObject:
    recipe = bench.recipe.variant(unit.part).actor
    ranked = read_file(unit.needs["data"].folder(bench.out) / RANKED, Ranked)
    pairs = turn_pairs(
        ranked, count=recipe.pairs, margin=recipe.margin, top=recipe.top, seed=seed_of(unit.path)
    )
    slots = bench.tasks("train").slots
    told = {"by_oracle": judged(pairs, slots)} if slots else {}
    return told | _preferences(unit, folder, bench, pairs, recipe)


def _sft(
    unit: Unit, folder: Path, bench: Bench, learnt: Iterable[Trajectory], recipe: Training
) -> JsonObject:
    count = write_file(folder / LEARNT, learnt)
    if not count:
        raise InvalidInput(
            f"{unit.path} has nothing to learn: no collaboration ended well.",
            hint="Train the warm start longer, or play the tasks more often.",
        )
    plan = SftPlan(
        base=bench.base,
        trajectories=folder / LEARNT,
        out=folder,
        adapter=bench.adapter(unit.needs.get("begin")),
        rank=bench.recipe.rank_of_adapters,
        base_name=Path(bench.recipe.base).name,
        schedule=recipe.schedule(unit.seed or 0, bench.deadline.left),
    )
    return {"learnt": count} | _training(unit, bench, plan)


def _preferences(  # noqa: PLR0913 - the last two have defaults and are named
    unit: Unit,
    folder: Path,
    bench: Bench,
    pairs: Sequence[Pair],
    recipe: Preference,
    *,
    hidden: bool = False,
    held_out: Sequence[Pair] = (),
) -> JsonObject:
    if not write_file(folder / PAIRS, pairs):
        raise InvalidInput(
            f"{unit.path} has nothing to compare: there are no pairs.",
            hint="Play the tasks more often, or draw more candidates.",
        )
    write_file(folder / HELD_OUT, held_out)
    plan = PreferencePlan(
        base=bench.base,
        pairs=folder / PAIRS,
        out=folder,
        adapter=bench.adapter(unit.needs.get("begin")),
        rank=bench.recipe.rank_of_adapters,
        base_name=Path(bench.recipe.base).name,
        loss=recipe.loss,
        beta=recipe.beta,
        nll=recipe.nll,
        hidden=hidden,
        held_out=folder / HELD_OUT if held_out else None,
        schedule=recipe.schedule(unit.seed or 0, bench.deadline.left),
    )
    return {"pairs": len(pairs), "held_out_pairs": len(held_out)} | _training(unit, bench, plan)


def _training(unit: Unit, bench: Bench, plan: Plan) -> JsonObject:
    bench.deadline.check(f"{unit.path} has not begun to train")
    with bench.shows(unit.path) as progress:
        figures = trained(plan, bench.gpus, progress)
    check_finished(figures, unit)
    shutil.rmtree(plan.out / "checkpoints", ignore_errors=True)  # they are large, and a run travels
    return figures
