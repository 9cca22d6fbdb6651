"""The stage that ranks candidates: by the critic or by the oracle.

Differs from the released code: the reference of the ranking sees the reference code as in training, unless
`reference_hidden` is false.
"""

from pathlib import Path

from memserver.messages import JsonObject
from sweet_rl.oracle import agreement, mistakes, values_of
from sweet_rl.pairs import is_held_out
from sweet_rl.plans import ScorePlan
from sweet_rl.recipe import Recipe
from sweet_rl.runs.context import CANDIDATES, RANKED, RunContext, check_finished
from sweet_rl.runs.units import ADAPTER, Unit
from sweet_rl.trajectories import Candidates, Ranked, read_file, write_file


def rank(unit: Unit, folder: Path, context: RunContext) -> JsonObject:
    """The candidates by the critic's advantages, or by the oracle; and how alike these two are."""
    variant, slots = context.recipe.variant(unit.part), context.tasks("train").slots
    recipe = variant.rank
    file, scored = (
        unit.needs["candidates"].folder(context.out) / CANDIDATES,
        folder / "scored.jsonl",
    )

    def by_oracle(record: Candidates) -> tuple[float, ...]:
        return values_of(slots[record.task], record.messages, record.candidates)

    if recipe.by == "oracle":
        ranked = [
            Ranked(**each.model_dump(), advantages=by_oracle(each), oracle=by_oracle(each))
            for each in read_file(file, Candidates)
        ]
        write_file(folder / RANKED, ranked)
        return {"states": len(ranked)} | agreement(ranked)
    from sweet_rl.scores import rank as score  # noqa: PLC0415 - torch

    plan = score_plan(variant, context, unit.needs["critic"])
    with context.shows(unit.path) as progress:
        figures = score(plan, file, scored, progress, seconds=context.deadline.left)
    check_finished(figures, unit)
    ranked = read_file(scored, Ranked)
    if slots:
        ranked = [each.model_copy(update={"oracle": by_oracle(each)}) for each in ranked]
    write_file(folder / RANKED, ranked)
    by_kind = {"by_kind": mistakes(ranked, slots)} if slots else {}
    unseen = [each for each in ranked if is_held_out(each.task, variant.critic.held_out)]
    return figures | agreement(ranked) | {"held_out": agreement(unseen)} | by_kind


def score_plan(variant: Recipe, context: RunContext, critic: Unit) -> ScorePlan:
    """How a critic scores, with the policy that it started from as its reference."""
    recipe, hidden = variant.rank, variant.critic.hidden
    return ScorePlan(
        base=context.base,
        critic=critic.folder(context.out) / ADAPTER,
        reference=context.adapter(critic.needs.get("begin")),
        hidden=hidden,
        reference_hidden=recipe.reference_hidden and hidden,
        normalised=recipe.normalised,
        batch_tokens=recipe.batch_tokens,
        precision=recipe.precision,
    )
