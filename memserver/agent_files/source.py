"""What an import reads: an agent's records, whatever file they come from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from memserver.agent_files.records import AgentRecord, Vectors


@dataclass(frozen=True, slots=True)
class Note:
    """Something of a file that could not be carried as it is: such as a `tool`, its name if there are several, and why."""

    kind: str
    name: str
    reason: str


class AgentSource(Protocol):
    @property
    def agent(self) -> AgentRecord: ...

    @property
    def vectors(self) -> Vectors | None:
        """Of which model the passages' vectors are, if they have any."""
        ...

    @property
    def notes(self) -> Sequence[Note]: ...

    def records(self, name: str) -> Iterator[Any]:
        """The records of a list, one after another, from the start each time. Raises AgentFileError."""
        ...
