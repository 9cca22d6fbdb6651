"""Trajectories in the form in which ColBench's are published, read and written.

A line has `task` (problem_description, ground_truth, test_cases), `dialogue_history` (the first message is
the description; the agent's have what it was given and gave besides), `answer` and `reward`. What the agent
was told of the rules stands in a rendered prompt, in their model's own template; it is not read.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from memserver.errors import InvalidInput
from memserver_evals.colbench.backend.examples import BackendExample
from memserver_evals.colbench.records import read_records
from memserver_evals.runs.run_folder import write_whole
from sweet_rl.trajectories import ChatMessage, Trajectory


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
