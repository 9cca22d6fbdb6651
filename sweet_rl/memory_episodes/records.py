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
"""How the name of a file ends that isn't finished (see `growing`)."""


class Line(Record):
    """What one side said before the questions; the user's are messages to the agent."""

    speaker: Literal["user", "assistant"]
    text: str
    at: datetime


class Asked(Record):
    """A question at the episode's end.

    Attributes:
        text: as the user asks it.
        answer: word for word, or a reply in own words for what was never said.
        evidence: the sentence that holds it; empty for what was never said.
        kind: of the corpus' question.
        line: where the sentence lies; None for what was never said.
        at: when it is asked.
    """

    text: str
    answer: str
    evidence: str
    kind: str
    line: int | None
    at: datetime


class Task(Record):
    """An episode to be played.

    Attributes:
        id: unique in a file.
        topic: of the conversation; tasks of one topic are no independent draws.
        side: training, validation or test.
        window: tokens of the agent.
        lines: of both sides, in order.
        asked: the questions, in order.
    """

    id: str
    topic: str
    side: Side
    window: int
    lines: tuple[Line, ...]
    asked: tuple[Asked, ...]


class Step(Record):
    """One call of the policy.

    Attributes:
        shown: messages of its stretch that it saw.
        action: the call as JSON, as the model writes it.
        message: of the user, from 0, that it belongs to; the questions follow the lines.
        alert: whether it was a step to save something by.
        tokens: that were generated.
    """

    shown: int
    action: str
    message: int
    alert: bool
    tokens: int


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
    """What came of a question."""

    answer: str
    right: bool


class Episode(Record):
    """An episode that was played.

    Attributes:
        task: its id.
        sample: which play of the task by this policy, from 0.
        reward: the share of the questions answered right.
        outcomes: of each question.
        stretches: all steps, in order.
        evictions: how often the queue's beginning moved, at least.
        violations: replies that were no valid call.
        tokens: that were generated.
    """

    task: str
    sample: int
    reward: float
    outcomes: tuple[Outcome, ...]
    stretches: tuple[Stretch, ...]
    evictions: int
    violations: int = 0
    tokens: int

    @property
    def key(self) -> tuple[str, int]:
        """Tells it from all others of the same policy."""
        return self.task, self.sample

    @property
    def steps(self) -> list[tuple[Messages, Step]]:
        """Each step with its prompt."""
        return [
            (stretch.messages[: step.shown], step)
            for stretch in self.stretches
            for step in stretch.steps
        ]


class Executed(Candidates):
    """Candidates of a state, each with what episodes came to that went on from it (none: not executed)."""

    rewards: tuple[tuple[float, ...], ...] = ()


class Preferred(Record):
    """Of two plays of a task the better one and the worse one, by their samples."""

    task: str
    better: int
    worse: int


class Kept(Record):
    """A play that is imitated."""

    task: str
    sample: int


class Ordered(Candidates):
    """Candidates of a state, and pairs of them, the better one first, by their places."""

    pairs: tuple[tuple[int, int], ...]


class Drawn(Record):
    """Everything that one play of a task gave: the episode, and candidates for states in it."""

    episode: Episode
    states: tuple[Executed, ...] = ()

    @property
    def key(self) -> tuple[str, int]:
        """The episode's."""
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
