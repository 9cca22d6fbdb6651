"""The tasks of frontend collaboration, and the files that they are published in."""

from dataclasses import dataclass
from pathlib import Path

from memserver_evals.colbench.records import Published, read_named


@dataclass(frozen=True, slots=True)
class FrontendExample:
    id: str  # stable
    description: str  # what the human says first
    reference: str  # the page that it has in mind, as HTML. The agent never sees it
    kind: str = ""  # a generated task's, or an empty string


def load_frontend(path: Path) -> tuple[FrontendExample, ...]:
    """The tasks of a file: JSON Lines or a list, with the published names of the fields. Raises InvalidInput."""
    return tuple(
        FrontendExample(name, record.problem_description, record.ground_truth)
        for name, record in read_named(path, Published, "frontend").items()
    )
