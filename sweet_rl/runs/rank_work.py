"""The stage that ranks candidates: by the critic or by the oracle, with pictures of what turns are worth."""

from pathlib import Path

from memserver.messages import JsonObject
from sweet_rl.behaviour import mistakes
from sweet_rl.oracle import agreement, gains_of, values_of
from sweet_rl.pairs import is_held_out, successes
from sweet_rl.picture import draw
from sweet_rl.plans import ScorePlan
from sweet_rl.runs.bench import CANDIDATES, RANKED, SCORED, Bench, check_finished, collected_by
from sweet_rl.runs.stages import Unit
from sweet_rl.trajectories import Candidates, Ranked, read_file, write_file

SOME = 2
"""Collaborations of each kind that are drawn."""


def rank(unit: Unit, folder: Path, bench: Bench) -> JsonObject:
    variant = bench.recipe.variant(unit.part)
    of_critic, recipe = variant.critic, variant.rank
    file = unit.needs["candidates"].folder(bench.out) / CANDIDATES
    if recipe.by == "oracle":
        drawn = read_file(file, Candidates)
        ranked = [_by_oracle(each, bench) for each in drawn]
        write_file(folder / RANKED, ranked)
        return {"states": len(ranked)} | agreement(ranked)
    from sweet_rl.ranking import rank as score  # noqa: PLC0415 - torch

    adapter = bench.adapter(unit.needs["critic"])
    assert adapter is not None
    plan = ScorePlan(
        base=bench.base,
        critic=adapter,
        reference=bench.adapter(unit.needs.get("begin")),
        hidden=of_critic.hidden,
        reference_hidden=recipe.reference_hidden and of_critic.hidden,
        normalised=recipe.normalised,
        batch_tokens=recipe.batch_tokens,
        precision=recipe.precision,
    )
    with bench.shows(unit.path) as progress:
        figures = score(plan, file, folder / SCORED, progress, seconds=bench.deadline.left)
    check_finished(figures, unit)
    ranked = [_with_oracle(each, bench) for each in read_file(folder / SCORED, Ranked)]
    write_file(folder / RANKED, ranked)
    _draw_some(unit, folder, bench, plan)
    slots = bench.tasks("train").slots
    told = {"by_kind": mistakes(ranked, slots)} if slots else {}
    unseen = [each for each in ranked if is_held_out(each.task, of_critic.held_out)]
    return figures | agreement(ranked) | {"held_out": agreement(unseen)} | told


def _draw_some(unit: Unit, folder: Path, bench: Bench, plan: ScorePlan) -> None:
    """Pictures of some collaborations: which turn earned what. Long ones, that ended well and badly."""
    from sweet_rl.scores import score_turns  # noqa: PLC0415 - torch

    collected = collected_by(unit.needs["candidates"], bench)
    by_length = sorted(collected, key=lambda each: -each.turns)
    failed = [each for each in by_length if each.reward < 1]
    chosen = [*successes(by_length)[:SOME], *failed[:SOME]]
    slots = bench.tasks("train").slots
    for number, (played, advantages) in enumerate(
        zip(chosen, score_turns(plan, chosen), strict=True)
    ):
        scores = {"critic": advantages}
        if played.task in slots:
            scores["oracle, over an idle message"] = gains_of(slots[played.task], played)
        (folder / f"turns-{number}.png").write_bytes(draw(played, scores))


def _by_oracle(record: Candidates, bench: Bench) -> Ranked:
    values = _oracle(record, bench)
    return Ranked(**record.model_dump(), advantages=values, oracle=values)


def _with_oracle(record: Ranked, bench: Bench) -> Ranked:
    if not bench.tasks("train").slots:
        return record
    return record.model_copy(update={"oracle": _oracle(record, bench)})


def _oracle(record: Candidates, bench: Bench) -> tuple[float, ...]:
    task = bench.tasks("train").slots[record.task]
    return values_of(task, record.messages, record.candidates)
