"""How often a system searched, and how often that brought what answers: of an example, and on average."""

from collections.abc import Sequence
from dataclasses import dataclass

from memserver_evals.task import Played


@dataclass(frozen=True, slots=True)
class Searches:
    own: int = 0  # that the model made
    # how many of them brought something of the evidence; None where the data names none
    own_right: int | None = None
    auto: int = 0  # that the server made (automatic recall); `auto_right` likewise
    auto_right: int | None = None


@dataclass(frozen=True, slots=True)
class SearchMeans:
    """Those of some examples: how many for an example, and the share of them that brought evidence."""

    own: float
    own_right: float | None
    auto: float
    auto_right: float | None

    def shown(self) -> tuple[str, str]:
        """How many, and the share, as tables show them."""
        if not self.auto:
            return f"{self.own:.2f}", _share(self.own_right)
        return (
            f"{self.own:.2f}, automatic {self.auto:.2f}",
            f"{_share(self.own_right)}, automatic {_share(self.auto_right)}",
        )


def count_searches(played: Played, evidence: frozenset[str]) -> Searches | None:
    """The searches of an example; None where its system has none to make."""
    replies = [turn.reply for turn in played.turns]
    if all(reply.searches is None for reply in replies):
        return None
    made = [search for reply in replies for search in reply.searches or ()]
    right = [not evidence.isdisjoint(search.found) for search in made]
    auto = [search.auto for search in made]
    known = bool(evidence)
    auto_right = sum(hit for hit, by_server in zip(right, auto, strict=True) if by_server)
    return Searches(
        len(made) - sum(auto),
        sum(right) - auto_right if known else None,
        sum(auto),
        auto_right if known else None,
    )


def mean_searches(searches: Sequence[Searches | None]) -> SearchMeans | None:
    """The means of the examples whose system searches; None where none does."""
    known = [each for each in searches if each is not None]
    if not known:
        return None
    return SearchMeans(
        sum(each.own for each in known) / len(known),
        _right([(each.own, each.own_right) for each in known]),
        sum(each.auto for each in known) / len(known),
        _right([(each.auto, each.auto_right) for each in known]),
    )


def _right(counts: Sequence[tuple[int, int | None]]) -> float | None:
    known = [(made, right) for made, right in counts if right is not None]
    made = sum(each for each, _ in known)
    return sum(right for _, right in known) / made if made else None


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.2f}"
