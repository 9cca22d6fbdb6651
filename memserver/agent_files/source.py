"""What an import reads: an agent's records, whatever file they come from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from memserver.agent_files.records import LISTS, AgentRecord, FileRecord, MessageRecord, Vectors
from memserver.messages import CallRecord, Entry, FunctionCall


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


class WholeSource:
    """A source whose records are all in memory; its messages are counted once they are read."""

    vectors = None

    def __init__(self) -> None:
        self._records: dict[str, list[FileRecord]] = {name: [] for name in LISTS}
        self.notes: list[Note] = []

    def records(self, name: str) -> Iterator[Any]:
        return iter(self._records[name])

    def messages(self) -> list[Entry]:
        return [_as_message(record) for record in self.records("messages")]

    def count_by(self, tokens: Sequence[int]) -> None:
        pairs = zip(self.records("messages"), tokens, strict=True)
        self._records["messages"] = [
            record.model_copy(update={"tokens": count}) for record, count in pairs
        ]


def _as_message(record: MessageRecord) -> Entry:
    made = record.call
    call = None
    if made is not None:
        call = CallRecord(FunctionCall(made.id, made.name, made.arguments), made.state, made.result)
    return Entry(
        record.position, record.role, record.text, record.created_at, 0, record.thought, call
    )
