"""Results in a terminal."""

from collections.abc import Mapping, Sequence

from memserver.cli.console import print_table
from memserver_evals.runs.results import Table
from memserver_evals.scoring.statistics import Estimate


def print_scores(table: Table, windows: Mapping[str, int | None]) -> None:
    """The main score with its interval, how it came about, and what it cost; then the means of the other scores.

    The report has their intervals.
    """
    titles = ("system", "window", "n", table.main_score.replace("_", " "), "words")
    print_table(
        (*titles, "searches", "found", "fitted", "page", "tokens in/out", "no answer"),
        [_main(table, name, windows.get(name)) for name in table.systems],
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


def _main(table: Table, name: str, window: int | None) -> Sequence[str]:
    one = table.overall[name]
    main = one.scores.get(table.main_score)
    return (
        name,
        "-" if window is None else str(window),
        str(one.examples),
        "-" if main is None else main.shown(2),
        f"{one.answer_words:.0f}",
        *(("-", "-") if one.searches is None else one.searches.shown()),
        "-" if one.share_fitted is None else f"{100 * one.share_fitted:.0f} %",
        "-" if one.page_characters is None else f"{one.page_characters:.0f} chars",
        f"{one.tokens_in:.0f}/{one.tokens_out:.0f}",
        ", ".join(f"{count} {code}" for code, count in one.errors.items()) or "0",
    )


def _mean(found: Estimate | None) -> str:
    return f"{found.mean:.3f}" if found and found.count else "-"
