"""Draws several next messages for the states of collaborations that were played."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from memserver.messages import JsonObject
from sweet_rl.agent_turns import cleaned
from sweet_rl.deadline import Deadline
from sweet_rl.growing import GrowingFile
from sweet_rl.plans import Progress, unseen
from sweet_rl.sampling.samplers import Sampled, Sampler, Sampling, seed_of
from sweet_rl.trajectories import Candidates, ChatMessage, Trajectory


@dataclass(frozen=True, slots=True)
class Draws:
    count: int = 16  # for each state
    sampling: Sampling = field(default_factory=Sampling)  # how
    seed: int = 0  # of the chance
    at_once: int = 32  # states at a time
    deadline: Deadline = field(default_factory=Deadline)  # after which no state is begun
    progress: Progress = unseen  # is told how many states are done


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
    file = GrowingFile(path, Candidates, lambda record: record.key)
    return await file.fill(
        keys, draw, at_once=how.at_once, deadline=how.deadline, progress=how.progress
    )


def _said(drawn: Sequence[Sampled]) -> list[ChatMessage]:
    return [ChatMessage(role="assistant", content=each.text) for each in drawn]


def figures_of(candidates: Sequence[Candidates]) -> JsonObject:
    shares = [len(set(each.candidates)) / len(each.candidates) for each in candidates]
    return {
        "states": len(candidates),
        "candidates": sum(len(each.candidates) for each in candidates),
        "tokens": sum(each.tokens for each in candidates),
        "distinct": sum(shares) / max(1, len(shares)),
        "states_with_one_text": sum(len(set(each.candidates)) == 1 for each in candidates),
    }
