"""The stages that train: from trajectories, pairs and candidates to adapters.

Differs from the paper: LoRA adapters in place of full fine-tuning, and losses on the agent's turns alone, for NLL terms
too. The critic sums the means of turns as the paper writes it; `loss: trajectory_mean` is the released code's.
"""

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from memserver.errors import InvalidInput
from memserver.messages import JsonObject
from sweet_rl.launching import Plan, trained
from sweet_rl.oracle import judge
from sweet_rl.pairs import in_tasks, is_held_out, some, successes, trajectory_pairs, turn_pairs
from sweet_rl.plans import PreferencePlan, SftPlan
from sweet_rl.recipe import Critic, Preference, Training, Trajectories
from sweet_rl.rollouts import figures_of
from sweet_rl.runs.context import (
    CANDIDATES,
    RANKED,
    TRAJECTORIES,
    RunContext,
    check_finished,
    collected_by,
)
from sweet_rl.runs.play_stages import Plays, play, play_by_script
from sweet_rl.runs.units import Unit
from sweet_rl.sampling.samplers import seed_of
from sweet_rl.trajectories import Candidates, Pair, Ranked, Trajectory, read_file, write_file


def warm_start(unit: Unit, folder: Path, context: RunContext) -> JsonObject:
    """Scripted dialogues, and a training on them."""
    recipe, path = context.recipe.warm_start, folder / TRAJECTORIES
    assert recipe is not None
    play_by_script(unit, context, context.tasks("warm-start"), path, recipe.samples)
    played = read_file(path, Trajectory)
    learnt = successes(played) if recipe.only_solved else played
    return figures_of(played) | _imitate(unit, folder, context, learnt, recipe)


def rft(unit: Unit, folder: Path, context: RunContext) -> JsonObject:
    """Rejection fine-tuning on what was collected."""
    recipe = context.recipe.variant(unit.part).rft
    return _imitate(unit, folder, context, successes(collected_by(unit, context)), recipe)


def rft_matched(unit: Unit, folder: Path, context: RunContext) -> JsonObject:
    """The same with further plays, that cost as many tokens as SWEET-RL's candidates."""
    recipe, path = context.recipe.rft_matched, folder / "extra.jsonl"
    assert recipe is not None
    collected = collected_by(unit, context)
    drawn = read_file(unit.needs["candidates"].folder(context.out) / CANDIDATES, Candidates)
    plays = [Plays(path, extra_samples(collected, drawn), context.sampling)]
    play(unit, context, context.tasks("train"), plays)
    extra = read_file(path, Trajectory)
    figures = {f"extra_{name}": value for name, value in figures_of(extra).items()}
    learnt = [*successes(collected), *successes(extra)]
    return figures | _imitate(unit, folder, context, learnt, recipe)


def extra_samples(collected: Sequence[Trajectory], drawn: Sequence[Candidates]) -> int:
    """How often each task may be played for what the candidates cost, in generated tokens.

    Where what was collected cost none (it was scripted), the agent's messages are counted instead.
    """
    tasks = len({each.task for each in collected})
    cost = sum(each.tokens for each in drawn)
    spent = sum(each.tokens for each in collected)
    if not spent:
        cost = sum(len(each.candidates) for each in drawn)
        spent = sum(each.turns for each in collected)
    return max(1, round(cost / (spent / len(collected) * tasks)))


def mdpo(unit: Unit, folder: Path, context: RunContext) -> JsonObject:
    """Multi-turn DPO on what was collected."""
    recipe = context.recipe.variant(unit.part).mdpo
    pairs = trajectory_pairs(collected_by(unit, context), every_success=recipe.every_success)
    return _prefer(unit, folder, context, _chosen(pairs, recipe), recipe)


def critic(unit: Unit, folder: Path, context: RunContext) -> JsonObject:
    """SWEET-RL's critic; some tasks are held out for its accuracy."""
    recipe = context.recipe.variant(unit.part).critic
    pairs = trajectory_pairs(collected_by(unit, context), every_success=recipe.every_success)
    held_out = [pair for pair in pairs if is_held_out(pair.task, recipe.held_out)]
    learnt = [pair for pair in pairs if not is_held_out(pair.task, recipe.held_out)]
    hidden, learnt = recipe.hidden, _chosen(learnt, recipe)
    return _prefer(unit, folder, context, learnt, recipe, hidden=hidden, held_out=held_out)


def _chosen(pairs: Sequence[Pair], recipe: Trajectories) -> list[Pair]:
    chosen = some(pairs, recipe.most)
    return in_tasks(chosen) if recipe.by_task else chosen


def actor(unit: Unit, folder: Path, context: RunContext) -> JsonObject:
    """SWEET-RL's policy, from pairs of candidates."""
    recipe = context.recipe.variant(unit.part).actor
    ranked = read_file(unit.needs["data"].folder(context.out) / RANKED, Ranked)
    pairs = turn_pairs(ranked, recipe.rule, seed=seed_of(unit.path))
    slots = context.tasks("train").slots
    judged = {"by_oracle": judge(pairs, slots)} if slots else {}
    return judged | _prefer(unit, folder, context, pairs, recipe)


def _imitate(
    unit: Unit, folder: Path, context: RunContext, learnt: Iterable[Trajectory], recipe: Training
) -> JsonObject:
    data = folder / "learnt.jsonl"
    count = write_file(data, learnt)
    if not count:
        raise InvalidInput(
            f"{unit.path} has nothing to learn: no collaboration ended well.",
            hint="Train the warm start longer, or play the tasks more often.",
        )
    plan = SftPlan(trajectories=data, **_plan(unit, folder, context, recipe))
    return {"learnt": count} | _train(unit, context, plan)


def _prefer(  # noqa: PLR0913 - the last two have defaults and are named
    unit: Unit,
    folder: Path,
    context: RunContext,
    pairs: Sequence[Pair],
    recipe: Preference,
    *,
    hidden: bool = False,
    held_out: Sequence[Pair] = (),
) -> JsonObject:
    data, tried = folder / "pairs.jsonl", folder / "held_out.jsonl"
    if not write_file(data, pairs):
        raise InvalidInput(
            f"{unit.path} has nothing to compare: there are no pairs.",
            hint="Play the tasks more often, or draw more candidates.",
        )
    write_file(tried, held_out)
    plan = PreferencePlan(
        pairs=data,
        loss=recipe.loss,
        beta=recipe.beta,
        nll=recipe.nll,
        hidden=hidden,
        held_out=tried if held_out else None,
        in_order=isinstance(recipe, Trajectories) and recipe.by_task,
        **_early_end(recipe),
        **_plan(unit, folder, context, recipe),
    )
    return {"pairs": len(pairs), "held_out_pairs": len(held_out)} | _train(unit, context, plan)


def _early_end(recipe: Preference) -> dict[str, Any]:
    if not isinstance(recipe, Critic):
        return {}
    return {"patience": recipe.patience, "measure_every": recipe.measure_every}


def _plan(unit: Unit, folder: Path, context: RunContext, recipe: Training) -> dict[str, Any]:
    return {
        "base": context.base,
        "out": folder,
        "adapter": context.adapter(unit.needs.get("begin")),
        "rank": context.recipe.rank_of_adapters,
        "base_name": Path(context.recipe.base).name,
        "schedule": recipe.schedule(unit.seed or 0, context.deadline.left),
    }


def _train(unit: Unit, context: RunContext, plan: Plan) -> JsonObject:
    context.deadline.check(f"{unit.path} has not begun to train")
    with context.shows(unit.path) as progress:
        figures = trained(plan, context.gpus, progress)
    check_finished(figures, unit)
    shutil.rmtree(plan.out / "checkpoints", ignore_errors=True)  # they are large, and a run travels
    return figures
