"""Results in a terminal: tables that fit 80 columns."""

from math import isnan

from rich.table import Table as Shown

from memserver_evals.runs.results import Table
from memserver_evals.scoring.statistics import Estimate


def leading(table: Table) -> Shown:
    """The main score with its interval, and what it cost: narrow enough for a terminal of 80 columns."""
    shown = Shown(
        "system", "n", table.main_score.replace("_", " "), "fitted", "tokens in/out", "no answer"
    )
    shown.columns[0].no_wrap = shown.columns[2].no_wrap = True
    for name in table.systems:
        one = table.overall[name]
        fitted = "-" if one.share_fitted is None else f"{100 * one.share_fitted:.0f} %"
        shown.add_row(
            name,
            str(one.examples),
            shown_estimate(one.scores.get(table.main_score), digits=2),
            fitted,
            f"{one.tokens_in:.0f}/{one.tokens_out:.0f}",
            ", ".join(f"{count} {code}" for code, count in one.errors.items()) or "0",
        )
    return shown


def others(table: Table) -> Shown | None:
    """The means of the other scores; None where there are none. The report has their intervals."""
    names = [name for name in table.scores if name != table.main_score]
    if not names:
        return None
    shown = Shown("score", *table.systems)
    for name in names:
        means = [table.overall[system].scores.get(name) for system in table.systems]
        shown.add_row(name.replace("_", " "), *(_mean(each) for each in means))
    return shown


def _mean(found: Estimate | None) -> str:
    return f"{found.mean:.3f}" if found and found.count else "-"


def shown_estimate(found: Estimate | None, *, sign: bool = False, digits: int = 3) -> str:
    """A mean with its interval; a dash where there is none."""
    if found is None or not found.count:
        return "-"
    plus = "+" if sign else ""
    mean = f"{found.mean:{plus}.3f}"
    if isnan(found.low):
        return mean
    return f"{mean} [{found.low:{plus}.{digits}f}, {found.high:{plus}.{digits}f}]"
