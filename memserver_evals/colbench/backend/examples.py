"""The tasks of backend collaboration, and the files that they are published in."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from memserver_evals.colbench.records import Published, Text, read_named


@dataclass(frozen=True, slots=True)
class BackendExample:
    id: str  # stable
    description: str  # what the human says first; it ends with the signature
    reference: str  # the code that the human has in mind. The agent never sees it
    # Python expressions; what the reference gives for them is what an answer has to give
    calls: tuple[str, ...]
    kind: str = ""  # a generated task's family, or an empty string
    # messages that the agent has for this one; None for the usual number
    max_turns: int | None = None


class _Record(Published):
    test_cases: Annotated[Mapping[str, Text], Field(min_length=1)]


def load_backend(path: Path) -> tuple[BackendExample, ...]:
    """The tasks of a file: JSON Lines or a list, with the published names of the fields. Raises InvalidInput."""
    return tuple(
        BackendExample(
            name, record.problem_description, record.ground_truth, tuple(record.test_cases.values())
        )
        for name, record in read_named(path, _Record, "backend").items()
    )
