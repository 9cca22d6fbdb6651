"""Figures with their intervals as text, and Markdown's tables."""

import math
from collections.abc import Sequence

from memserver_evals.scoring.statistics import Estimate


def shown(found: Estimate, digits: int = 3, *, sign: bool = False) -> str:
    if math.isnan(found.mean):
        return "-"
    form = f"{'+' if sign else ''}.{digits}f"
    interval = "" if math.isnan(found.low) else f" [{found.low:{form}}, {found.high:{form}}]"
    return f"{found.mean:{form}}{interval}"


def interval_of(found: Estimate, *, sign: bool = False) -> str:
    return shown(found, sign=sign).partition(" ")[2] or "-"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
