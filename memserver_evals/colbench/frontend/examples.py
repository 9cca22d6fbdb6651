"""The tasks of frontend collaboration, and the files that they are published in."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

from memserver.errors import InvalidInput
from memserver_evals.colbench.records import read_records

_Text = Annotated[str, StringConstraints(strict=True, min_length=1)]


@dataclass(frozen=True, slots=True)
class FrontendExample:
    """One page that is wanted.

    Attributes:
        id: stable.
        description: what the human says first.
        reference: the page that it has in mind, as HTML. The agent never sees it.
        kind: a generated task's, or an empty string.
    """

    id: str
    description: str
    reference: str
    kind: str = ""


class _Record(BaseModel):
    """A line of a published file; what else stands in it is not used."""

    model_config = ConfigDict(extra="ignore")

    id: _Text | None = None
    problem_description: _Text
    ground_truth: _Text


def load_frontend(path: Path) -> tuple[FrontendExample, ...]:
    """The tasks of a file: JSON Lines or a list, with the published names of the fields.

    Tasks without an id are numbered.

    Raises InvalidInput: with file and line.
    """
    examples: dict[str, FrontendExample] = {}
    for number, record in enumerate(read_records(path, _Record)):
        name = record.id or f"frontend_{number:05d}"
        if name in examples:
            raise InvalidInput(f"{path}: the id {name} stands there twice (record {number + 1}).")
        examples[name] = FrontendExample(name, record.problem_description, record.ground_truth)
    return tuple(examples.values())


def hash_of(examples: Sequence[FrontendExample]) -> str:
    return hashlib.sha256(repr(tuple(examples)).encode("utf-8", "replace")).hexdigest()[:16]
