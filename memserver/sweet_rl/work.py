"""What each stage does: from the files of the units that it needs to files of its own, and figures."""

import asyncio
import math
import shutil
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from memserver.colbench.backend.scripted import NOISY, ScriptedAgent
from memserver.errors import InvalidInput
from memserver.messages import JsonObject
from memserver.sweet_rl import candidates as drawing
from memserver.sweet_rl import rollouts as playing
from memserver.sweet_rl.candidates import Draws, draw_candidates
from memserver.sweet_rl.deadline import Deadline, OutOfTime
from memserver.sweet_rl.launching import Plan, free_memory, trained
from memserver.sweet_rl.oracle import agreement, values_of
from memserver.sweet_rl.pairs import successes, trajectory_pairs, turn_pairs
from memserver.sweet_rl.picture import draw
from memserver.sweet_rl.plans import PreferencePlan, Progress, ScorePlan, SftPlan
from memserver.sweet_rl.policy import Policy
from memserver.sweet_rl.recipe import Preference, Recipe, Training
from memserver.sweet_rl.rollouts import Player, Rollouts, roll_out
from memserver.sweet_rl.samplers import GREEDY, Sampler, Sampling, seed_of
from memserver.sweet_rl.sampling_sources import SamplingSource
from memserver.sweet_rl.stages import ADAPTER, Stage, Unit
from memserver.sweet_rl.task_sets import Split, Surroundings, TaskSet, environment, make_tasks
from memserver.sweet_rl.trajectories import (
    Candidates,
    Pair,
    Ranked,
    Trajectory,
    read_file,
    write_file,
)
from memserver.tasks import System

TRAJECTORIES, CANDIDATES, SCORED, RANKED = (
    "trajectories.jsonl",
    "candidates.jsonl",
    "scored.jsonl",
    "ranked.jsonl",
)
LEARNT, PAIRS, HELD_OUT, EXTRA = "learnt.jsonl", "pairs.jsonl", "held_out.jsonl", "extra.jsonl"
SAMPLED_PLAYS, GREEDY_PLAYS = "sampled.jsonl", "greedy.jsonl"
SOME = 2
"""Collaborations of each kind that are drawn."""
Shows = Callable[[str], AbstractContextManager[Progress]]
"""Shows how far something is, under a title, while a block runs."""


@dataclass(frozen=True)
class Bench:
    """All that stages work with.

    Attributes:
        recipe: what is to be done.
        out: the run's folder, an absolute path.
        base: the base model's folder.
        source: of samplers.
        around: what tasks need of the machine.
        deadline: of this call.
        shows: progress.
        gpus: that train together.
    """

    recipe: Recipe
    out: Path
    base: Path
    source: SamplingSource
    around: Surroundings
    deadline: Deadline
    shows: Shows
    gpus: int = 1
    _tasks: dict[Split, TaskSet] = field(default_factory=dict, repr=False)

    def tasks(self, split: Split) -> TaskSet:
        """The tasks of a split, made once."""
        if split not in self._tasks:
            self._tasks[split] = make_tasks(self.recipe, split, self.around.data)
        return self._tasks[split]

    def adapter(self, unit: Unit | None) -> Path | None:
        """The adapter that a unit made."""
        return None if unit is None else unit.folder(self.out) / ADAPTER

    def rollouts(self, samples: int, progress: Progress) -> Rollouts:
        """As the recipe has them."""
        return Rollouts(samples, self.recipe.sampling.at_once, self.deadline, progress)

    @property
    def sampling(self) -> Sampling:
        """Of rollouts and candidates."""
        return Sampling(self.recipe.sampling.temperature, self.recipe.sampling.max_tokens)


Work = Callable[[Unit, Path, Bench], JsonObject]
"""Does a unit in its folder, or goes on with it; the figures say what came of it."""


def warm_start(unit: Unit, folder: Path, bench: Bench) -> JsonObject:
    """Scripted dialogues, and a training on them."""
    recipe = bench.recipe.warm_start
    assert recipe is not None
    path = folder / TRAJECTORIES
    if not path.exists():
        tasks = bench.tasks("warm-start")
        asyncio.run(_play(unit, bench, tasks, _scripted(tasks, bench, unit), path, recipe.samples))
    played = read_file(path, Trajectory)
    learnt = successes(played) if recipe.only_solved else played
    return playing.figures_of(played) | _sft(unit, folder, bench, learnt, recipe)


def collect(unit: Unit, folder: Path, bench: Bench) -> JsonObject:
    """The training tasks, played."""
    recipe, tasks, path = bench.recipe.collect, bench.tasks("train"), folder / TRAJECTORIES
    if recipe.by == "scripted":
        player = _scripted(tasks, bench, unit)
        played = asyncio.run(_play(unit, bench, tasks, player, path, recipe.samples))
    else:
        played = asyncio.run(_sampled(unit, bench, tasks, path, recipe.samples))
    return playing.figures_of(played)


def rft(unit: Unit, folder: Path, bench: Bench) -> JsonObject:
    """Rejection fine-tuning on what was collected."""
    collected = _collected(unit, bench)
    return _sft(unit, folder, bench, successes(collected), bench.recipe.rft)


def rft_matched(unit: Unit, folder: Path, bench: Bench) -> JsonObject:
    """The same with further plays, that cost as many tokens as SWEET-RL's candidates."""
    recipe = bench.recipe.rft_matched
    assert recipe is not None
    collected = _collected(unit, bench)
    drawn = read_file(unit.needs["candidates"].folder(bench.out) / CANDIDATES, Candidates)
    samples = extra_samples(collected, drawn)
    path = folder / EXTRA
    if not path.exists():
        asyncio.run(_sampled(unit, bench, bench.tasks("train"), path, samples))
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
    """Multi-turn DPO on what was collected."""
    recipe = bench.recipe.mdpo
    pairs = trajectory_pairs(_collected(unit, bench), every_success=recipe.every_success)
    return _preferences(unit, folder, bench, pairs, recipe)


def critic(unit: Unit, folder: Path, bench: Bench) -> JsonObject:
    """SWEET-RL's critic; some tasks are held out for its accuracy."""
    recipe, _, _ = bench.recipe.variant(_variant(unit))
    pairs = trajectory_pairs(_collected(unit, bench), every_success=recipe.every_success)
    held_out = [pair for pair in pairs if _is_held_out(pair.task, recipe.held_out)]
    learnt = [pair for pair in pairs if not _is_held_out(pair.task, recipe.held_out)]
    return _preferences(
        unit, folder, bench, learnt, recipe, hidden=recipe.hidden, held_out=held_out
    )


def candidates(unit: Unit, folder: Path, bench: Bench) -> JsonObject:
    """Several next messages for each turn of the first trajectories."""
    recipe = bench.recipe
    collected = _collected(unit, bench)
    chosen = collected[: math.ceil(recipe.candidates.share * len(collected))]

    async def draw() -> list[Candidates]:
        with bench.shows(unit.path) as progress:
            async with bench.source.open(
                bench.adapter(unit.needs.get("begin")), logprobs=True
            ) as sampler:
                at_once = max(1, recipe.sampling.at_once * 2 // recipe.candidates.count)
                how = Draws(
                    recipe.candidates.count,
                    bench.sampling,
                    seed_of(unit.path),
                    at_once,
                    bench.deadline,
                    progress,
                )
                return await draw_candidates(chosen, sampler, folder / CANDIDATES, how)

    return drawing.figures_of(asyncio.run(draw()))


def rank(unit: Unit, folder: Path, bench: Bench) -> JsonObject:
    """The candidates by the critic's advantages, or by the oracle; and how alike these two are."""
    of_critic, recipe, _ = bench.recipe.variant(_variant(unit))
    file = unit.needs["candidates"].folder(bench.out) / CANDIDATES
    if recipe.by == "oracle":
        drawn = read_file(file, Candidates)
        ranked = [_by_oracle(each, bench) for each in drawn]
        write_file(folder / RANKED, ranked)
        return {"states": len(ranked)} | agreement(ranked)
    from memserver.sweet_rl.ranking import rank as score  # noqa: PLC0415 - torch

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
    _check_finished(figures, unit)
    ranked = [_with_oracle(each, bench) for each in read_file(folder / SCORED, Ranked)]
    write_file(folder / RANKED, ranked)
    _draw_some(unit, folder, bench, plan)
    free_memory()
    return figures | agreement(ranked)


def actor(unit: Unit, folder: Path, bench: Bench) -> JsonObject:
    """SWEET-RL's policy, from pairs of candidates."""
    _, _, recipe = bench.recipe.variant(_variant(unit))
    ranked = read_file(unit.needs["data"].folder(bench.out) / RANKED, Ranked)
    pairs = turn_pairs(ranked, count=recipe.pairs, seed=seed_of(unit.path))
    return _preferences(unit, folder, bench, pairs, recipe)


def evaluate(unit: Unit, folder: Path, bench: Bench) -> JsonObject:
    """A policy on the tasks of a split: as training plays, and greedily."""
    recipe = bench.recipe
    tasks = bench.tasks("validation" if unit.stage == "validate" else "test")
    single = unit.part == "single"
    modes = {SAMPLED_PLAYS: (bench.sampling, recipe.evaluate.samples)}
    if recipe.evaluate.greedy:
        modes[GREEDY_PLAYS] = (Sampling(GREEDY.temperature, bench.sampling.max_tokens), 1)
    figures: JsonObject = {}
    for name, (sampling, samples) in modes.items():
        path = folder / name
        if not path.exists():
            asyncio.run(
                _sampled(unit, bench, tasks, path, samples, sampling=sampling, single=single)
            )
        figures[path.stem] = playing.figures_of(read_file(path, Trajectory))
    return figures


WORK: Mapping[Stage, Work] = {
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
}


async def _sampled(  # noqa: PLR0913 - the last two have defaults and are named
    unit: Unit,
    bench: Bench,
    tasks: TaskSet,
    path: Path,
    samples: int,
    *,
    sampling: Sampling | None = None,
    single: bool = False,
) -> list[Trajectory]:
    """Played by the policy that the unit starts from."""
    adapter = bench.adapter(unit.needs.get("policy") or unit.needs.get("begin"))
    async with bench.source.open(adapter) as sampler:
        player = _policies(unit, sampler, sampling or bench.sampling)
        return await _play(unit, bench, tasks, player, path, samples, single=single)


async def _play(  # noqa: PLR0913 - the last one has a default and is named
    unit: Unit,
    bench: Bench,
    tasks: TaskSet,
    player: Player,
    path: Path,
    samples: int,
    *,
    single: bool = False,
) -> list[Trajectory]:
    with bench.shows(f"{unit.path} {path.stem}") as progress:
        async with environment(tasks, bench.around, single=single) as task:
            how = bench.rollouts(samples, progress)
            return await roll_out(task, tasks.examples, player, path, how)


def _policies(unit: Unit, sampler: Sampler, sampling: Sampling) -> Player:
    """Plays with another chance each time. Policies that are evaluated have the same chance."""
    owner = (unit.stage, unit.seed)

    def player(sample: int) -> System:
        return Policy(unit.path, sampler, sampling, seed_of(*owner, sample))

    return player


def _scripted(tasks: TaskSet, bench: Bench, unit: Unit) -> Player:
    recipe = bench.recipe.warm_start
    habits = NOISY if recipe is None else recipe.habits

    def player(sample: int) -> System:
        return ScriptedAgent(tasks.slots, habits, seed=seed_of(unit.path, sample))

    return player


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
    _check_finished(figures, unit)
    shutil.rmtree(plan.out / "checkpoints", ignore_errors=True)  # they are large, and a run travels
    return figures


def _check_finished(figures: JsonObject, unit: Unit) -> None:
    if not figures.get("finished", True):
        raise OutOfTime(
            f"The time is over: {unit.path} is not done.",
            hint="What is done is kept; the same command goes on.",
        )


def _collected(unit: Unit, bench: Bench) -> list[Trajectory]:
    return read_file(unit.needs["data"].folder(bench.out) / TRAJECTORIES, Trajectory)


def _draw_some(unit: Unit, folder: Path, bench: Bench, plan: ScorePlan) -> None:
    """Pictures of some collaborations: which turn earned what. Long ones, that ended well and badly."""
    from memserver.sweet_rl.scores import score_turns  # noqa: PLC0415 - torch

    collected = _collected(unit.needs["candidates"], bench)
    by_length = sorted(collected, key=lambda each: -each.turns)
    failed = [each for each in by_length if each.reward < 1]
    chosen = [*successes(by_length)[:SOME], *failed[:SOME]]
    slots = bench.tasks("train").slots
    for number, (played, advantages) in enumerate(
        zip(chosen, score_turns(plan, chosen), strict=True)
    ):
        scores = {"critic": advantages}
        if played.task in slots:
            task = slots[played.task]
            scores["oracle"] = tuple(
                values_of(task, played.before(turn), [played.said(turn)])[0]
                for turn in range(played.turns)
            )
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


def _variant(unit: Unit) -> str:
    return unit.part or "sweet"


def _is_held_out(task: str, share: float) -> bool:
    """By the task's name, so that all variants and seeds hold out the same ones."""
    return zlib.crc32(task.encode()) % 1000 < 1000 * share
