"""What tasks have in common whose examples are read before anything runs."""

from collections.abc import Sequence

from typing_extensions import override

from memserver_evals.task import E, Task


class ReadTask(Task[E]):
    """A task of examples that are there from the start; a subclass says the rest."""

    def __init__(self, examples: Sequence[E], data_hash: str) -> None:
        """`data_hash`: of the data that they were read from, and of what chose them."""
        self._examples = tuple(examples)
        self._hash = data_hash

    @property
    @override
    def data_hash(self) -> str:
        return self._hash

    @override
    def examples(self) -> Sequence[E]:
        return self._examples
