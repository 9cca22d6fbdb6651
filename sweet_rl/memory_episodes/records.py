"""What the steps of memory episodes hand to each other, and what is kept of an episode that was played."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal, Self

from pydantic import model_validator

from memserver_evals.runs.run_folder import AppendOnly
from sweet_rl.trajectories import Candidates, ChatMessage, Messages, Record, read_file
from sweet_rl.warm_start.corpus import Side

GROWING = ".part.jsonl"
"""How the name of a file ends that isn't finished (see `resumable`)."""


class EpisodeLine(Record):
    """What one side said before the questions; the user's are messages to the agent."""

    speaker: Literal["user", "assistant"]
    text: str
    at: datetime


class Asked(Record):
    """A question at the episode's end."""

    text: str  # as the user asks it
    answer: str  # word for word, or a reply in own words for what was never said
    evidence: str  # the sentence that holds it; empty for what was never said
    kind: str  # of the corpus' question
    line: int | None  # where the sentence lies; None for what was never said
    at: datetime  # when it is asked


class Task(Record):
    id: str  # unique in a file
    topic: str  # of the conversation; tasks of one topic are no independent draws
    side: Side  # training, validation or test
    window: int  # tokens of the agent
    lines: tuple[EpisodeLine, ...]  # of both sides, in order
    asked: tuple[Asked, ...]  # the questions, in order


class Step(Record):
    shown: int  # messages of its stretch that it saw
    action: str  # the call as JSON, as the model writes it
    message: int  # of the user, from 0, that it belongs to; the questions follow the lines
    alert: bool  # whether it was a step to save something by
    tokens: int  # that were generated


class Stretch(Record):
    """Steps whose prompts only grew: none was evicted and no note changed. Each saw the first `shown` messages."""

    messages: Messages
    steps: tuple[Step, ...]

    @model_validator(mode="after")
    def _within(self) -> Self:
        if not self.steps or self.steps[-1].shown != len(self.messages):
            raise ValueError("the last step of a stretch sees all of its messages")
        return self


class Outcome(Record):
    answer: str
    right: bool


class Episode(Record):
    task: str  # its id
    sample: int  # which play of the task by this policy, from 0
    reward: float  # the share of the questions answered right
    outcomes: tuple[Outcome, ...]  # of each question
    stretches: tuple[Stretch, ...]  # all steps, in order
    evictions: int  # how often the queue's beginning moved, at least
    violations: int = 0  # replies that were no valid call
    tokens: int  # that were generated

    @property
    def key(self) -> tuple[str, int]:
        return self.task, self.sample

    @property
    def steps(self) -> list[tuple[Messages, Step]]:
        return [
            (stretch.messages[: step.shown], step)
            for stretch in self.stretches
            for step in stretch.steps
        ]


class Executed(Candidates):
    """Candidates of a state, each with what episodes came to that went on from it (none: not executed)."""

    rewards: tuple[tuple[float, ...], ...] = ()


class Preferred(Record):
    task: str
    better: int
    worse: int


class Kept(Record):
    task: str
    sample: int


class Ordered(Candidates):
    pairs: tuple[tuple[int, int], ...]


class Drawn(Record):
    episode: Episode
    states: tuple[Executed, ...] = ()

    @property
    def key(self) -> tuple[str, int]:
        return self.episode.key


def stretches(steps: Sequence[tuple[Sequence[ChatMessage], Step]]) -> Iterator[Stretch]:
    """Put steps together whose prompts only grew; a step's own `shown` is not looked at."""
    last: tuple[ChatMessage, ...] = ()
    found: list[Step] = []
    for prompt, step in steps:
        if found and tuple(prompt[: len(last)]) != last:
            yield Stretch(messages=last, steps=tuple(found))
            found = []
        last = tuple(prompt)
        found.append(step.model_copy(update={"shown": len(prompt)}))
    if found:
        yield Stretch(messages=last, steps=tuple(found))


def read_parts(folder: Path, pattern: str) -> list[Drawn]:
    """The plays of all parts of a step, by task; of a part that isn't finished as many as there are."""
    found: dict[tuple[str, int], Drawn] = {}
    for path in sorted(folder.glob(pattern)):
        if path.name.endswith(GROWING):
            AppendOnly(path).close()  # cuts off half a line
        if path.stat().st_size:
            found |= {each.key: each for each in read_file(path, Drawn)}
    return [found[key] for key in sorted(found)]
