"""The stage that finds what candidates are worth, by playing each to its end, and who orders them alike.

The policy that drew them plays on. Critics are compared within states alone, since pairs are made within states.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import correlation, fmean

from memserver.messages import JsonObject
from memserver_evals.colbench.backend.examples import BackendExample
from memserver_evals.colbench.backend.rules import MAX_TURNS, gives_answer
from memserver_evals.scoring.statistics import estimate
from sweet_rl.oracle import values_of
from sweet_rl.pairs import is_held_out
from sweet_rl.plans import ScorePlan
from sweet_rl.recipe import MAIN, Values
from sweet_rl.resumable import ResumableJsonl
from sweet_rl.rollouts import Policy
from sweet_rl.runs.context import CANDIDATES, RANKED, RunContext
from sweet_rl.runs.units import Unit
from sweet_rl.sampling.samplers import seed_of
from sweet_rl.task_sets import open_task
from sweet_rl.trajectories import Candidates, Ranked, Record, read_file

HALVES = "the plays themselves, one half against the other"
State = tuple[str, int, int]
Scores = Mapping[State, Sequence[float]]
"""By state one for each candidate."""


class Continued(Record):
    """One play of a collaboration from a candidate on."""

    task: str  # these three say which state
    sample: int
    turn: int
    candidate: int  # its place in the state
    number: int  # of this play, from 0
    reward: float  # the share of tests passed

    @property
    def key(self) -> tuple[str, int, int, int, int]:
        return self.task, self.sample, self.turn, self.candidate, self.number


def play_values(unit: Unit, folder: Path, context: RunContext) -> JsonObject:
    recipe = context.recipe.values
    assert recipe is not None
    drawn = read_file(unit.needs["candidates"].folder(context.out) / CANDIDATES, Candidates)
    unlearnt = context.recipe.critic.held_out
    states, path = _chosen(drawn, recipe, unlearnt), folder / "continued.jsonl"
    if not path.exists():
        asyncio.run(_play_on(unit, context, states, path))
    plays = read_file(path, Continued)
    one, other = (_success(plays, half) for half in (0, 1))
    worth = {
        state: [fmean(both) for both in zip(values, other[state], strict=True)]
        for state, values in one.items()
    }
    slots = context.tasks("train").slots
    scores: dict[str, Scores] = {
        **_by_critics(unit, context),
        "multi-turn DPO's implicit reward": implicit_reward(unit, context, states),
        "oracle": {
            each.key: values_of(slots[each.task], each.messages, each.candidates) for each in states
        },
    }
    found = {name: rank_correlation(worth, each) for name, each in scores.items()}
    found[HALVES] = rank_correlation(one, other)
    held_out = sum(is_held_out(each.task, unlearnt) for each in states)
    return {
        "states": len(states),
        "held_out": held_out,
        "plays": len(plays),
        "rank_correlation": found,
    }


def rank_correlation(worth: Scores, scores: Scores) -> JsonObject:
    """Spearman's, of what candidates are worth and what is said of them, as its mean over states.

    States whose candidates are all worth the same are left out; scores that are all the same correlate by 0.

    Returns:
        `mean`, `low` and `high` (95 %, by a bootstrap over tasks) and `count`, the states.
    """
    values, tasks = [], []
    for state, mine in worth.items():
        its = scores[state][: len(mine)]
        if len(set(mine)) > 1:
            values.append(correlation(_ranks(mine), _ranks(its)) if len(set(its)) > 1 else 0.0)
            tasks.append(state[0])
    found = estimate(values, tasks, name="rank correlation")
    return {"mean": found.mean, "low": found.low, "high": found.high, "count": found.count}


def _ranks(values: Sequence[float]) -> list[float]:
    """From 0; equal ones share the mean of their places."""
    return [
        sum(other < value for other in values) + (sum(other == value for other in values) - 1) / 2
        for value in values
    ]


def _chosen(drawn: Iterable[Candidates], recipe: Values, unlearnt: float) -> list[Candidates]:
    """States with different texts, cut to so many candidates; those of a smaller number are among a larger one's.

    Those of the tasks that no critic has learnt from come first. `unlearnt`: the share of these.
    """
    cut = (
        each.model_copy(update={"candidates": each.candidates[: recipe.candidates]})
        for each in drawn
    )
    some = [each for each in cut if len(set(each.candidates)) > 1]

    def place(state: Candidates) -> tuple[bool, float]:
        return not is_held_out(state.task, unlearnt), Random(f"{state.key}").random()

    return sorted(some, key=place)[: recipe.states]


async def _play_on(
    unit: Unit, context: RunContext, states: Sequence[Candidates], path: Path
) -> None:
    recipe, tasks = context.recipe.values, context.tasks("train")
    assert recipe is not None
    examples = {example.id: example for example in tasks.examples}
    by_key = {each.key: each for each in states}
    keys = [
        (*state.key, place, number)
        for number in range(recipe.samples)
        for state in states
        for place, text in enumerate(state.candidates)
        if not number or not _ends(examples[state.task], state, text)
    ]
    async with (
        context.sampler(context.policy_of(unit)) as sampler,
        open_task(tasks, context.environment) as task,
    ):

        async def play(key: tuple[str, int, int, int, int]) -> Continued:
            name, sample, turn, place, number = key
            state = by_key[name, sample, turn]
            said = [each["content"] for each in state.messages if each["role"] == "assistant"]
            seed, begun = seed_of(unit.path, *key), (*said, state.candidates[place])
            policy = Policy(unit.path, sampler, context.sampling, seed, begun)
            played = await task.play(examples[name], policy)
            return Continued(
                task=name,
                sample=sample,
                turn=turn,
                candidate=place,
                number=number,
                reward=task.reward(examples[name], played),
            )

        with context.shows(unit.path) as progress:
            await ResumableJsonl(path, Continued, lambda record: record.key).fill(
                keys,
                play,
                at_once=context.recipe.sampling.at_once,
                deadline=context.deadline,
                progress=progress,
            )


def _ends(example: BackendExample, state: Candidates, text: str) -> bool:
    """Whether nothing is drawn after this text: it is worth the same each time."""
    return gives_answer(text) or state.turn + 1 >= (example.max_turns or MAX_TURNS)


def _success(plays: Iterable[Continued], half: int) -> dict[State, list[float]]:
    """By state, the share of plays that passed all tests after each candidate: of every second play, or of the only one."""
    found: dict[State, dict[int, list[float]]] = {}
    for each in plays:
        if each.number % 2 == half or not each.number:
            of_state = found.setdefault((each.task, each.sample, each.turn), {})
            of_state.setdefault(each.candidate, []).append(float(each.reward == 1))
    return {
        state: [fmean(by_place[place]) for place in sorted(by_place)]
        for state, by_place in found.items()
    }


def _by_critics(unit: Unit, context: RunContext) -> dict[str, Scores]:
    """What each critic of the run has said of the candidates."""
    found: dict[str, Scores] = {}
    for role, needed in unit.needs.items():
        if role.startswith("rank "):
            ranked = read_file(needed.folder(context.out) / RANKED, Ranked)
            name = role.removeprefix("rank ")
            title = "critic" if name == MAIN else f"critic of {name}"
            found[title] = {each.key: each.advantages for each in ranked}
    return found


def implicit_reward(unit: Unit, context: RunContext, states: Sequence[Candidates]) -> Scores:
    """What multi-turn DPO makes of them: the log-ratio of its policy to where it started, summed over a message."""
    from sweet_rl.scores import score_turns  # noqa: PLC0415 - torch

    policy = context.adapter(unit.needs["mdpo"])
    assert policy is not None
    plan = ScorePlan(
        base=context.base,
        critic=policy,
        reference=context.adapter(unit.needs.get("begin")),
        hidden=False,
        normalised=False,
        batch_tokens=context.recipe.rank.batch_tokens,
        precision=context.recipe.rank.precision,
    )
    with context.shows(f"{unit.path} implicit reward") as progress:
        found = score_turns(plan, states, progress)
    return {each.key: scores for each, scores in zip(states, found, strict=True)}
