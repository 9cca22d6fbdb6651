"""The stages of the gate (see `gate`): states of validation tasks with several next messages, and a critic's scores of these."""

import asyncio
from pathlib import Path

from memserver.messages import JsonObject
from sweet_rl.rollouts import (
    Draws,
    Policy,
    Rollouts,
    draw_candidates,
    figures_of,
    figures_of_candidates,
    roll_out,
)
from sweet_rl.runs.context import CANDIDATES, RANKED, RunContext, check_finished
from sweet_rl.runs.rank_stage import score_plan
from sweet_rl.runs.units import Unit
from sweet_rl.sampling.samplers import seed_of
from sweet_rl.task_sets import open_task
from sweet_rl.trajectories import Candidates, Trajectory, read_file

PLAYS = "plays.jsonl"


def gate_states(unit: Unit, folder: Path, context: RunContext) -> JsonObject:
    """Play validation tasks with the policy that all start from, and draw messages in the states of some."""
    recipe, tasks = context.recipe, context.tasks("validation")
    how, path = recipe.gate, folder / PLAYS
    assert how is not None
    at_once, count = recipe.sampling.at_once, recipe.candidates.count

    async def draw() -> list[Candidates]:
        async with (
            context.sampler(context.policy_of(unit)) as sampler,
            open_task(tasks, context.environment) as task,
        ):
            if not path.exists():
                policy = Policy("gate", sampler, context.sampling, seed_of("gate"))
                with context.shows("gate's plays") as progress:
                    rolls = Rollouts(1, at_once, context.deadline, progress)
                    await roll_out(task, tasks.examples[: how.plays], lambda _: policy, path, rolls)
            plays = read_file(path, Trajectory)[: how.states_of]
            with context.shows("gate's candidates") as progress:
                draws = Draws(
                    count,
                    context.sampling,
                    seed_of("gate candidates"),
                    max(1, at_once // count),
                    context.deadline,
                    progress,
                )
                return await draw_candidates(plays, sampler, folder / CANDIDATES, draws)

    drawn = asyncio.run(draw())
    return figures_of(read_file(path, Trajectory)) | figures_of_candidates(drawn)


def gate_scores(unit: Unit, folder: Path, context: RunContext) -> JsonObject:
    """What a critic says of these messages."""
    from sweet_rl.scores import rank  # noqa: PLC0415 - torch

    plan = score_plan(context.recipe.variant(unit.part), context, unit.needs["critic"])
    drawn = unit.needs["candidates"].folder(context.out) / CANDIDATES
    with context.shows(unit.path) as progress:
        figures = rank(plan, drawn, folder / RANKED, progress, seconds=context.deadline.left)
    check_finished(figures, unit)
    return figures
