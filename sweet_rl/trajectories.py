"""The records that the stages of training hand to each other, and their files: JSON Lines, one a record.

A trajectory is one collaboration that was played; candidates are several next messages for one state of one; ranked are
candidates with what a critic thinks of them; a pair is what a preference loss learns from. Trajectories are also read and
written in the form in which ColBench's are published.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator
from typing_extensions import TypedDict

from memserver.errors import InvalidInput
from memserver_evals.colbench.backend.examples import BackendExample
from memserver_evals.colbench.records import read_records
from memserver_evals.runs.run_folder import write_whole

Role = Literal["system", "user", "assistant"]
_Share = Annotated[float, Field(ge=0, le=1)]


class ChatMessage(TypedDict):
    role: Role
    content: str


Messages = tuple[ChatMessage, ...]


class Record(BaseModel):
    """A line of a file; what it doesn't know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Trajectory(Record):
    task: str  # the example's id
    kind: str = ""  # a generated task's family, or an empty string
    sample: Annotated[int, Field(ge=0)] = 0  # which play of the task this is, from 0
    hidden: str  # the reference code, which the agent never sees
    messages: Messages  # system, user, assistant, user, …, assistant
    answer: str  # the code that was graded
    passed: tuple[bool, ...] = ()  # for each test, whether it passed
    passed_by_operator: tuple[bool, ...] = ()  # the same by `==`, as released
    reward: _Share  # the share of tests passed
    tokens: Annotated[int, Field(ge=0)] = 0  # that the agent generated, as far as it was counted

    @model_validator(mode="after")
    def _in_turns(self) -> Self:
        roles = [message["role"] for message in self.messages]
        turns = ["user", "assistant"] * (len(roles) // 2)
        if len(roles) < 3 or roles != ["system", *turns]:
            raise ValueError("the messages must be system, user, assistant, user, …, assistant")
        return self

    @property
    def key(self) -> tuple[str, int]:
        return self.task, self.sample

    @property
    def turns(self) -> int:
        return (len(self.messages) - 1) // 2

    def before(self, turn: int) -> Messages:
        return self.messages[: 2 + 2 * turn]

    def said(self, turn: int) -> str:
        return self.messages[2 + 2 * turn]["content"]


class Candidates(Record):
    """Several next messages of the agent, for one state of one collaboration."""

    task: str  # the example's id
    kind: str = ""  # a generated task's family, or an empty string
    hidden: str  # the reference code
    sample: Annotated[int, Field(ge=0)] = 0  # of the trajectory that the state is from
    turn: Annotated[int, Field(ge=0)]  # which message of the agent is next, from 0
    messages: Messages  # the state; it ends with the user's message
    candidates: Annotated[tuple[str, ...], Field(min_length=1)]  # the texts
    tokens: Annotated[int, Field(ge=0)] = 0  # that were generated for all of them

    @model_validator(mode="after")
    def _one_each(self) -> Self:
        if not self.messages or self.messages[-1]["role"] != "user":
            raise ValueError("the messages must end with one of the user")
        return self

    @property
    def key(self) -> tuple[str, int, int]:
        return self.task, self.sample, self.turn


class Ranked(Candidates):
    advantages: tuple[float, ...]  # by the critic; higher is better
    # by who knows the hidden constants; None where nobody does
    oracle: tuple[float, ...] | None = None

    @model_validator(mode="after")
    def _scored(self) -> Self:
        _same_length(self.candidates, advantages=self.advantages, oracle=self.oracle)
        return self


class Pair(Record):
    """Two ways to continue one prompt, in TRL's conversational form."""

    task: str  # the example's id
    hidden: str  # the reference code
    prompt: Messages  # what both continue
    chosen: Messages  # the better one: all messages that follow, the user's among them, or one of the agent
    rejected: Messages  # the worse one


AnyRecord = TypeVar("AnyRecord", bound=Record)


def write_file(path: Path, records: Iterable[Record]) -> int:
    lines = [record.model_dump_json() for record in records]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, "".join(f"{line}\n" for line in lines))
    return len(lines)


def read_file(path: Path, kind: type[AnyRecord]) -> list[AnyRecord]:
    return read_records(path, kind)


def _same_length(candidates: Sequence[str], **others: Sequence[float] | None) -> None:
    for name, values in others.items():
        if values is not None and len(values) != len(candidates):
            raise ValueError(f"{len(candidates)} candidates, but {len(values)} {name}")


class _Said(BaseModel):
    model_config = ConfigDict(extra="ignore")

    role: Literal["user", "assistant"]
    content: str
    output: str | None = None


class _Task(BaseModel):
    model_config = ConfigDict(extra="ignore")

    problem_description: str
    ground_truth: str
    test_cases: Mapping[str, str] = {}


class PublishedTrajectory(BaseModel):
    model_config = ConfigDict(extra="ignore")

    task: _Task
    dialogue_history: list[_Said] = Field(min_length=2)
    answer: str | None = None
    reward: float = Field(ge=0, le=1)


def read_published(path: Path, instructions: str) -> list[Trajectory]:
    """Trajectories of a published file. Its tasks are numbered as they come, and so are plays of one task."""
    names: dict[str, str] = {}
    plays: Counter[str] = Counter()
    found = []
    for number, record in enumerate(read_records(path, PublishedTrajectory), 1):
        description = record.task.problem_description
        task = names.setdefault(description, f"published_{len(names):05d}")
        messages = [ChatMessage(role="system", content=instructions)]
        messages += [
            ChatMessage(role=each.role, content=_text(each)) for each in record.dialogue_history
        ]
        try:
            trajectory = Trajectory(
                task=task,
                sample=plays[task],
                hidden=record.task.ground_truth,
                messages=tuple(messages),
                answer=record.answer or "",
                reward=record.reward,
            )
        except ValueError as error:
            raise InvalidInput(
                f"{path}, trajectory {number}: human and agent don't take turns."
            ) from error
        plays[task] += 1
        found.append(trajectory)
    return found


def write_published(
    path: Path, trajectories: Iterable[Trajectory], examples: Mapping[str, BackendExample]
) -> None:
    """Write trajectories as published ones, for their programs."""
    lines = [
        PublishedTrajectory.model_validate(
            _as_published(each, examples[each.task])
        ).model_dump_json()
        for each in trajectories
    ]
    write_whole(path, "".join(f"{line}\n" for line in lines))


def _as_published(trajectory: Trajectory, example: BackendExample) -> dict[str, Any]:
    calls = {f"test{number}": call for number, call in enumerate(example.calls, 1)}
    return {
        "task": {
            "problem_description": example.description,
            "ground_truth": example.reference,
            "test_cases": calls,
        },
        "dialogue_history": [
            {
                "role": message["role"],
                "content": message["content"],
                "output": message["content"] if message["role"] == "assistant" else None,
            }
            for message in trajectory.messages[1:]
        ],
        "answer": trajectory.answer,
        "reward": trajectory.reward,
    }


def _text(said: _Said) -> str:
    """What was said in full: the content of an agent's last message may have been cut at its marker."""
    return said.output if said.role == "assistant" and said.output else said.content
