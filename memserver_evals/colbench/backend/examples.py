"""The tasks of backend collaboration, and the files that they are published in."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from memserver.errors import InvalidInput
from memserver_evals.colbench.records import read_records

_Text = Annotated[str, StringConstraints(strict=True, min_length=1)]


@dataclass(frozen=True, slots=True)
class BackendExample:
    """One function that is wanted.

    Attributes:
        id: stable.
        description: what the human says first; it ends with the signature.
        reference: the code that the human has in mind. The agent never sees it.
        calls: Python expressions; what the reference gives for them is what an answer has to give.
        kind: a generated task's family, or an empty string.
        max_turns: messages that the agent has for this one; None for the usual number.
    """

    id: str
    description: str
    reference: str
    calls: tuple[str, ...]
    kind: str = ""
    max_turns: int | None = None


class _Record(BaseModel):
    """A line of a published file; what else stands in it is not used."""

    model_config = ConfigDict(extra="ignore")

    id: _Text | None = None
    problem_description: _Text
    ground_truth: _Text
    test_cases: Annotated[Mapping[str, _Text], Field(min_length=1)]


def load_backend(path: Path) -> tuple[BackendExample, ...]:
    """The tasks of a file: JSON Lines or a list, with the published names of the fields.

    Tasks without an id are numbered.

    Raises InvalidInput: with file and line.
    """
    seen: set[str] = set()
    examples = []
    for number, record in enumerate(read_records(path, _Record)):
        name = record.id or f"backend_{number:05d}"
        if name in seen:
            raise InvalidInput(f"{path}: the id {name} stands there twice (record {number + 1}).")
        seen.add(name)
        examples.append(
            BackendExample(
                name,
                record.problem_description,
                record.ground_truth,
                tuple(record.test_cases.values()),
            )
        )
    return tuple(examples)


def hash_of(examples: tuple[BackendExample, ...]) -> str:
    return hashlib.sha256(repr(examples).encode("utf-8", "replace")).hexdigest()[:16]
