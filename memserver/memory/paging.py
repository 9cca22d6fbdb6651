"""How search results are paged and worded, for the model and for the API alike."""

from collections.abc import Sequence
from dataclasses import dataclass

PAGE_SIZE = 10


@dataclass(frozen=True, slots=True)
class Page:
    """A request for one page; pages count from 1."""

    number: int = 1
    size: int = PAGE_SIZE

    @property
    def offset(self) -> int:
        """How many results lie before this page."""
        return (self.number - 1) * self.size

    def pages(self, total: int) -> int:
        """How many pages `total` results make; at least one."""
        return max(1, -(-total // self.size))

    def exists(self, total: int) -> bool:
        """Whether there is anything on this page."""
        return self.number >= 1 and self.offset < total


def describe(lines: Sequence[str], page: Page, total: int, reachable: int | None = None) -> str:
    """The answer of a search tool: "Showing 10 of 124 results (page 1/13)", then the results.

    Of many results only the best may be `reachable`; then that is said.
    """
    if total == 0:
        return "No results found."
    within = total if reachable is None else reachable
    place = f"page {page.number}/{page.pages(within)}"
    if within < total:
        place += f"; only the best {within} can be paged"
    head = f"Showing {len(lines)} of {total} results ({place})"
    return "\n".join([head + (":" if lines else "."), *lines])
