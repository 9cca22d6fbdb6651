"""Plays tasks with a policy, or draws its next messages, and keeps them: the training data, and what evaluations score."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from memserver.errors import ModelError
from memserver.messages import JsonObject
from memserver_evals.colbench.backend.examples import BackendExample
from memserver_evals.colbench.backend.task import BackendTask
from memserver_evals.systems.failing import failed_reply
from memserver_evals.task import Material, Played, Reply, System
from sweet_rl.agent_turns import cleaned
from sweet_rl.progress import Progress, unseen
from sweet_rl.resumable import Deadline, ResumableJsonl
from sweet_rl.sampling.samplers import Sampled, Sampler, Sampling, seed_of
from sweet_rl.trajectories import Candidates, ChatMessage, Trajectory

Player = Callable[[int], System]
"""The system that plays for the n-th time, from 0: the same policy with another chance."""


@dataclass(frozen=True)
class Policy:
    """Plays each example in its own conversation; its chance is of the seed, the example and the turn."""

    name: str  # how tables name it
    sampler: Sampler  # of its messages
    sampling: Sampling = field(default_factory=Sampling)  # how they are drawn
    seed: int = 0  # another one plays the same example otherwise
    said: tuple[str, ...] = ()  # its first messages, which aren't drawn

    @asynccontextmanager
    async def begin(self, example_id: str, material: Material) -> AsyncIterator["PolicyTalk"]:
        yield PolicyTalk(
            self, example_id, [ChatMessage(role="system", content=material.instructions)]
        )


@dataclass
class PolicyTalk:
    policy: Policy
    example_id: str
    messages: list[ChatMessage]

    async def say(self, text: str, *, at: datetime | None = None) -> Reply:  # noqa: ARG002 - the protocol's
        """Say something and draw the answer. A chat that is too long for the model has an empty answer."""
        policy, turn = self.policy, len(self.messages) // 2
        self.messages.append({"role": "user", "content": text})
        if turn < len(policy.said):
            self.messages.append({"role": "assistant", "content": policy.said[turn]})
            return Reply(policy.said[turn], 0, 0)
        seed = seed_of(policy.seed, self.example_id, len(self.messages))
        try:
            chat = tuple(cleaned(self.messages))
            [drawn] = await policy.sampler.sample(chat, 1, policy.sampling, seed)
        except ModelError as error:
            return failed_reply(error)
        [answer] = cleaned([ChatMessage(role="assistant", content=drawn.text)])
        self.messages.append(answer)
        return Reply(answer["content"], drawn.read, drawn.tokens)


@dataclass(frozen=True, slots=True)
class Rollouts:
    samples: int = 1  # times that each is played
    at_once: int = 64  # conversations at a time
    deadline: Deadline = field(default_factory=Deadline)  # after which no conversation is begun
    progress: Progress = unseen  # is called with how many are done


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

    file = ResumableJsonl(path, Trajectory, lambda record: record.key)
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
        passed_by_operator=tuple(played.outcome.get("passed_by_operator", ())),
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


@dataclass(frozen=True, slots=True)
class Draws:
    count: int = 16  # for each state
    sampling: Sampling = field(default_factory=Sampling)  # how
    seed: int = 0  # of the chance
    at_once: int = 32  # states at a time
    deadline: Deadline = field(default_factory=Deadline)  # after which no state is begun
    progress: Progress = unseen  # is called with how many states are done


async def draw_candidates(
    trajectories: Sequence[Trajectory], sampler: Sampler, path: Path, how: Draws
) -> list[Candidates]:
    """Candidates for each message of the agent in these trajectories, written to a file."""
    by_key = {trajectory.key: trajectory for trajectory in trajectories}

    async def draw(key: tuple[str, int, int]) -> Candidates:
        task, sample, turn = key
        trajectory = by_key[task, sample]
        state = trajectory.before(turn)
        chat = tuple(cleaned(state))
        drawn = await sampler.sample(chat, how.count, how.sampling, seed_of(how.seed, *key))
        return Candidates(
            task=task,
            kind=trajectory.kind,
            hidden=trajectory.hidden,
            sample=sample,
            turn=turn,
            messages=state,
            candidates=tuple(each["content"] for each in cleaned(_said(drawn))),
            tokens=sum(each.tokens for each in drawn),
        )

    keys = [
        (trajectory.task, trajectory.sample, turn)
        for trajectory in trajectories
        for turn in range(trajectory.turns)
    ]
    file = ResumableJsonl(path, Candidates, lambda record: record.key)
    return await file.fill(
        keys, draw, at_once=how.at_once, deadline=how.deadline, progress=how.progress
    )


def _said(drawn: Sequence[Sampled]) -> list[ChatMessage]:
    return [ChatMessage(role="assistant", content=each.text) for each in drawn]


def figures_of_candidates(candidates: Sequence[Candidates]) -> JsonObject:
    shares = [len(set(each.candidates)) / len(each.candidates) for each in candidates]
    return {
        "states": len(candidates),
        "candidates": sum(len(each.candidates) for each in candidates),
        "tokens": sum(each.tokens for each in candidates),
        "distinct": sum(shares) / max(1, len(shares)),
        "states_with_one_text": sum(len(set(each.candidates)) == 1 for each in candidates),
    }
