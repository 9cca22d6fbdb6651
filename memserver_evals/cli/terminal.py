"""Results in a terminal."""

from collections.abc import Sequence
from math import isnan

from memserver.cli.console import print_table
from memserver_evals.runs.results import Table
from memserver_evals.scoring.statistics import Estimate


def print_scores(table: Table) -> None:
    """The main score with its interval, a page of search results, and what it cost; then the means of the other scores.

    The report has their intervals.
    """
    titles = ("system", "n", table.main_score.replace("_", " "))
    print_table(
        (*titles, "fitted", "page", "tokens in/out", "no answer"),
        [_main(table, name) for name in table.systems],
        sentences=("no answer",),
    )
    others = [name for name in table.scores if name != table.main_score]
    if others:
        rows = [
            (
                name.replace("_", " "),
                *(_mean(table.overall[system].scores.get(name)) for system in table.systems),
            )
            for name in others
        ]
        print_table(("score", *table.systems), rows)


def _main(table: Table, name: str) -> Sequence[str]:
    one = table.overall[name]
    return (
        name,
        str(one.examples),
        shown_estimate(one.scores.get(table.main_score), digits=2),
        "-" if one.share_fitted is None else f"{100 * one.share_fitted:.0f} %",
        "-" if one.page_characters is None else f"{one.page_characters:.0f} chars",
        f"{one.tokens_in:.0f}/{one.tokens_out:.0f}",
        ", ".join(f"{count} {code}" for code, count in one.errors.items()) or "0",
    )


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
