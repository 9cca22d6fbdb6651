"""How search results are paged and worded, for the model and for the API alike."""

from dataclasses import dataclass

PAGE_SIZE = 10


@dataclass(frozen=True, slots=True)
class ResultPage:
    """A request for one page; pages count from 1."""

    number: int = 1
    size: int = PAGE_SIZE

    @property
    def offset(self) -> int:
        return (self.number - 1) * self.size

    def pages(self, total: int) -> int:
        return max(1, -(-total // self.size))

    def exists(self, total: int) -> bool:
        return self.number >= 1 and self.offset < total


def header(
    shown: int, page: ResultPage, total: int, *, reachable: int | None = None, exact: bool = True
) -> str:
    """The first line of a search tool's answer: "Showing 10 of 124 results (page 1/13):".

    Of many results only the best may be `reachable`; then that is said. Where the total is not exact:
    "Showing 10 of more than 10000 results (page 1)".
    """
    if total == 0:
        return "No results found."
    within = total if reachable is None else reachable
    place = f"page {page.number}/{page.pages(within)}" if exact else f"page {page.number}"
    if within < total:
        place += f"; only the best {within} can be paged"
    of = total if exact else f"more than {total}"
    return f"Showing {shown} of {of} results ({place}){':' if shown else '.'}"
