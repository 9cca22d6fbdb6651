"""The steps that play: which tasks, how often, and into which file. What is played is kept, and the rest resumes later."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from memserver.errors import InvalidInput
from sweet_rl.memory_episodes import forking
from sweet_rl.memory_episodes.forking import CallDraws
from sweet_rl.memory_episodes.playing import Stage
from sweet_rl.memory_episodes.records import GROWING, Drawn, Task
from sweet_rl.memory_episodes.tasks import QUESTIONS
from sweet_rl.progress import show_progress
from sweet_rl.resumable import Deadline, ResumableJsonl

LEAST_EVICTIONS = 2


@dataclass(frozen=True, slots=True)
class Part:
    """Which part of the tasks a process plays: of four, the second one is every fourth from the second on."""

    number: int = 1
    of: int = 1

    @classmethod
    def read(cls, text: str) -> "Part":
        number, _, of = text.partition("/")
        if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
            raise InvalidInput(f"{text} is no part.", hint="Write 2/4 for the second of four.")
        return cls(int(number), int(of))

    def file(self, folder: Path, name: str) -> Path:
        return folder / f"{name}-{self.number}-of-{self.of}.jsonl"


@dataclass(frozen=True, slots=True)
class Playing:
    samples: int = 1  # times that each is, from `first` on
    first: int = 0  # number of the first
    at_once: int = 24  # episodes at a time
    part: Part = Part()  # which of the tasks
    deadline: Deadline = field(default_factory=Deadline)  # after which no episode is begun
    draws: CallDraws | None = None  # calls that are drawn beside those made


async def play_all(
    stage: Stage, tasks: Sequence[Task], folder: Path, name: str, how: Playing
) -> list[Drawn]:
    """Play tasks, and write what came of it."""
    own = tasks[how.part.number - 1 :: how.part.of]
    by_id = {task.id: task for task in own}
    samples = range(how.first, how.first + how.samples)
    keys = [(task.id, sample) for sample in samples for task in own]

    async def play(key: tuple[str, int]) -> Drawn:
        task, sample = key
        agent = f"{name}-{task}-{sample}-{os.getpid()}"
        return await forking.play(stage, by_id[task], sample, name=agent, draws=how.draws)

    path = how.part.file(folder, name)
    if path.is_file():
        path.replace(path.with_suffix(GROWING))  # all of it may be there, or more is wanted now
    with show_progress("episodes") as progress:
        file = ResumableJsonl(path, Drawn, lambda record: record.key)
        return await file.fill(
            keys, play, at_once=how.at_once, deadline=how.deadline, progress=progress
        )


def some(tasks: Sequence[Task], count: int | None, seed: int) -> list[Task]:
    """So many tasks, by a seed; None: all."""
    if count is None or count >= len(tasks):
        return list(tasks)
    return Random(f"tasks {seed}").sample(list(tasks), count)


def faults(task: Task, drawn: Drawn) -> list[str]:
    episode = drawn.episode
    users = sum(line.speaker == "user" for line in task.lines) + len(task.asked)
    found = []
    if episode.evictions < LEAST_EVICTIONS:
        found.append(f"{episode.evictions} evictions")
    if not 20 <= users <= 40:
        found.append(f"{users} messages of the user")
    if len(task.asked) != QUESTIONS:
        found.append(f"{len(task.asked)} questions")
    if episode.reward < 1:
        wrong = [
            asked.text
            for asked, each in zip(task.asked, episode.outcomes, strict=True)
            if not each.right
        ]
        found.append(f"not answered: {'; '.join(wrong)}")
    return found
