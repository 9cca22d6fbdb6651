"""The systems that can be compared: their names, what they are, and which can play which task."""

from collections.abc import Mapping, Sequence
from typing import get_args

from memserver.client.models import SearchMode
from memserver.errors import InvalidInput
from memserver_evals.tasks.registry import MaterialKind, TaskEntry

AGENT, AUTO, FULL, PASTED = "memserver", "memserver-auto", "full", "ten-searches-pasted"
AGENTS = (AGENT, AUTO)
ALIASES: Mapping[str, str] = {"oracle-search": PASTED}
"""Names of earlier versions."""
_EVERY: frozenset[MaterialKind] = frozenset({"sessions", "documents"})
SYSTEMS: dict[str, tuple[frozenset[MaterialKind], str]] = {
    AGENT: (_EVERY, "an agent of memserver, through its HTTP API"),
    AUTO: (_EVERY, "the same, with the option auto_recall: the server makes the first search"),
    FULL: (
        _EVERY,
        "the same model with everything in a window of --full-window, the oldest cut where it doesn't fit",
    ),
    "window": (_EVERY, "the same model with the newest that fits the window"),
    "summary": (
        frozenset({"sessions"}),
        "the same model with a recursive summary that it wrote, and nothing else",
    ),
    "summary-extract": (
        frozenset({"sessions"}),
        "the same, the summary made of the history's own sentences",
    ),
    "retrieval": (_EVERY, "the same model with the --top-k nearest vectors' texts"),
    "copying": (
        _EVERY,
        "no model: what has the rarest words of the question is copied, 15 words of a turn or a sentence",
    ),
    PASTED: (
        _EVERY,
        "no model: a script makes some ten searches in memserver and pastes what they find",
    ),
}
SEARCHES: dict[str, SearchMode] = {f"search-{mode}": mode for mode in get_args(SearchMode)}
SYSTEMS |= {
    name: (frozenset({"documents"}), f"memserver's archival search alone ({mode}); no model")
    for name, mode in SEARCHES.items()
}
WITHOUT_MODEL = frozenset({"copying", PASTED, *SEARCHES})
"""They ask no model, and no window limits them."""


def check_systems(systems: Sequence[str], entry: TaskEntry) -> tuple[str, ...]:
    """The systems, `all` spelt out. Raises InvalidInput for one that there is not, or that can't do the task."""
    suiting = entry.systems or tuple(
        name
        for name, (suits, _) in SYSTEMS.items()
        if entry.material <= suits and name not in SEARCHES
    )
    if list(systems) == ["all"]:
        return suiting
    names = tuple(dict.fromkeys(ALIASES.get(name, name) for name in systems))
    for name in names:
        if name not in SYSTEMS:
            raise InvalidInput(
                f"There is no system {name!r}.", hint=f"There are {', '.join(SYSTEMS)}, and all."
            )
        if name not in suiting:
            raise InvalidInput(
                f"The system {name} can't do {entry.name}.",
                hint=f"It can be done by {', '.join(suiting)}.",
            )
    return names
