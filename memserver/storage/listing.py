"""Lists by a cursor: in which direction, and behind which item. Every list of the storage is cut by this."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Cut:
    """Which part of a list is wanted.

    Attributes:
        limit: items at most.
        after: what the last item before them is ordered by; None: from the list's beginning.
        descending: from its end to its beginning.
    """

    limit: int
    after: Any = None
    descending: bool = False

    def behind(self, column: str) -> str:
        """A condition: the column comes behind `after`."""
        if self.after is None:
            return "true"
        return f"{column} {'<' if self.descending else '>'} %(after)s"

    def by(self, column: str) -> str:
        """The order by the column, and the limit."""
        return f"ORDER BY {column} {'DESC' if self.descending else 'ASC'} LIMIT %(limit)s"

    @property
    def parameters(self) -> dict[str, Any]:
        """Of a statement with these in it."""
        return {"after": self.after, "limit": self.limit}
