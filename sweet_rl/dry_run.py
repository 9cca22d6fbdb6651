"""One step of every training of a recipe, and its ranking, on a tiny random model of the base's architecture."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from sweet_rl.pairs import successes, trajectory_pairs, turn_pairs
from sweet_rl.plans import EpochSchedule, PreferencePlan, ScorePlan, SftPlan
from sweet_rl.recipe import Preference, Recipe, Training
from sweet_rl.scores import rank
from sweet_rl.tiny import write_tiny
from sweet_rl.training import train_preferences, train_sft
from sweet_rl.training_run import Figures
from sweet_rl.trajectories import Candidates, ChatMessage, Ranked, Trajectory, read_file, write_file


def dry_run(recipe: Recipe, architecture: Path, folder: Path) -> dict[str, Figures]:
    """The figures of each stage; the architecture is a folder with config.json and chat_template.jinja."""
    base = write_tiny(architecture, folder / "base")
    played = list(_made_up(2 * recipe.collect.samples))
    learnt, pairs, drawn, ranked, turns = (
        folder / f"{name}.jsonl" for name in ("successes", "pairs", "candidates", "ranked", "turns")
    )
    write_file(learnt, successes(played))
    write_file(pairs, trajectory_pairs(played))
    write_file(drawn, _candidates(played, recipe.candidates.count))
    adapters = recipe.rank_of_adapters

    def prefer(stage: str, part: Preference, data: Path, *, hidden: bool = False) -> Figures:
        plan = PreferencePlan(
            base,
            data,
            folder / stage,
            rank=adapters,
            loss=part.loss,
            beta=part.beta,
            nll=part.nll,
            hidden=hidden,
            schedule=_one_step(part),
        )
        return train_preferences(plan)

    critic, actor = recipe.critic, recipe.actor
    sft = SftPlan(base, learnt, folder / "rft", rank=adapters, schedule=_one_step(recipe.rft))
    figures = {
        "rft": train_sft(sft),
        "mdpo": prefer("mdpo", recipe.mdpo, pairs),
        "critic": prefer("critic", critic, pairs, hidden=critic.hidden),
    }
    plan = ScorePlan(
        base,
        folder / "critic" / "adapter",
        hidden=critic.hidden,
        reference_hidden=recipe.rank.reference_hidden and critic.hidden,
        normalised=recipe.rank.normalised,
        batch_tokens=recipe.rank.batch_tokens,
    )
    figures["rank"] = rank(plan, drawn, ranked)
    scored = read_file(ranked, Ranked)
    write_file(turns, turn_pairs(scored, actor.rule))
    figures["actor"] = prefer("actor", actor, turns)
    return figures


def _one_step(part: Training) -> EpochSchedule:
    """One that changes something: at a warm-up's first step the rate is 0."""
    return replace(part.schedule(0, None), steps=1, warmup=0)


def _made_up(tasks: int) -> Iterator[Trajectory]:
    """For each task a collaboration that ended well, and one that didn't."""
    for number in range(tasks):
        for sample, (answer, reward) in enumerate(((f"x > {number}", 1.0), ("x > 0.5", 0.0))):
            question: list[ChatMessage] = [
                {"role": "assistant", "content": "What is the limit?"},
                {"role": "user", "content": f"It is {number}."},
            ]
            yield Trajectory(
                task=f"task {number}",
                sample=sample,
                hidden=f"def f(x):\n    return x > {number}",
                messages=(
                    {"role": "system", "content": "Ask, then answer."},
                    {"role": "user", "content": "Say whether x is over the limit."},
                    *(question if reward == 1 else ()),
                    {"role": "assistant", "content": f"I WANT TO ANSWER:\nreturn {answer}"},
                ),
                answer=answer,
                reward=reward,
            )


def _candidates(played: list[Trajectory], count: int) -> list[Candidates]:
    texts = tuple(f"What is number {number}?" for number in range(count))
    return [
        Candidates(
            task=each.task,
            sample=each.sample,
            hidden=each.hidden,
            turn=0,
            messages=each.before(0),
            candidates=texts,
        )
        for each in played
    ]
