"""Plays tasks with a policy and keeps what was said: the training data, and what evaluations score."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from memserver.messages import JsonObject
from memserver_evals.colbench.backend.examples import BackendExample
from memserver_evals.colbench.backend.task import BackendTask
from memserver_evals.task import Played, System
from sweet_rl.deadline import Deadline
from sweet_rl.growing import GrowingFile
from sweet_rl.plans import Progress, unseen
from sweet_rl.trajectories import ChatMessage, Trajectory

Player = Callable[[int], System]
"""The system that plays for the n-th time, from 0: the same policy with another chance."""


@dataclass(frozen=True, slots=True)
class Rollouts:
    samples: int = 1  # times that each is played
    at_once: int = 64  # conversations at a time
    deadline: Deadline = field(default_factory=Deadline)  # after which no conversation is begun
    progress: Progress = unseen  # is told how many are done


async def roll_out(
    task: BackendTask, examples: Sequence[BackendExample], player: Player, path: Path, how: Rollouts
) -> list[Trajectory]:
    """Play each example so many times, and write the trajectories to a file.

    What an earlier call played, and did not come to the end with, is not played again.
    """
    by_id = {example.id: example for example in examples}
    systems = [player(number) for number in range(how.samples)]

    async def play(key: tuple[str, int]) -> Trajectory:
        name, sample = key
        example = by_id[name]
        played = await task.play(example, systems[sample])
        return as_trajectory(task, example, sample, played)

    file = GrowingFile(path, Trajectory, lambda record: record.key)
    keys = [(example.id, sample) for sample in range(how.samples) for example in examples]
    return await file.fill(
        keys, play, at_once=how.at_once, deadline=how.deadline, progress=how.progress
    )


def as_trajectory(
    task: BackendTask, example: BackendExample, sample: int, played: Played
) -> Trajectory:
    messages: list[ChatMessage] = [{"role": "system", "content": task.instructions(example)}]
    for turn in played.turns:
        messages.append({"role": "user", "content": turn.said})
        messages.append({"role": "assistant", "content": turn.reply.text})
    return Trajectory(
        task=example.id,
        kind=example.kind,
        sample=sample,
        hidden=example.reference,
        messages=tuple(messages),
        answer=str(played.outcome.get("answer", "")),
        passed=tuple(played.outcome.get("passed", ())),
        reward=task.reward(example, played),
        tokens=sum(turn.reply.tokens_out for turn in played.turns),
    )


def figures_of(trajectories: Sequence[Trajectory]) -> JsonObject:
    best: dict[str, float] = {}
    worst: dict[str, float] = {}
    for each in trajectories:
        best[each.task] = max(each.reward, best.get(each.task, 0.0))
        worst[each.task] = min(each.reward, worst.get(each.task, 1.0))
    count = max(1, len(trajectories))
    return {
        "tasks": len(best),
        "trajectories": len(trajectories),
        "success": sum(each.reward == 1 for each in trajectories) / count,
        "tests_passed": sum(each.reward for each in trajectories) / count,
        "best_success": sum(reward == 1 for reward in best.values()) / max(1, len(best)),
        "tasks_with_both": sum(best[task] == 1 and worst[task] < 1 for task in best),
        "turns": sum(each.turns for each in trajectories) / count,
        "answer_characters": sum(len(each.answer) for each in trajectories) / count,
        "tokens": sum(each.tokens for each in trajectories),
    }
