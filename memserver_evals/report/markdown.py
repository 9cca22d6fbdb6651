"""A run's tables as Markdown, for documents: made from its results.json alone."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from memserver.messages import JsonObject
from memserver_evals.runs.results import AT, number_or_last, read_estimate, read_results
from memserver_evals.runs.searches import SearchMeans

Cells = Mapping[str, JsonObject]
"""By system: what results.json says of it."""
NONE = "-"


def tables(run: Path) -> str:
    """All tables of a run that has ended. Raises InvalidInput: it has no results, or they can't be read."""
    return "\n\n".join(read_results(run, lambda results: list(_parts(results)))) + "\n"


def _parts(results: JsonObject) -> Iterator[str]:
    main, systems = results["main_score"], results["systems"]
    windows = results["run"].get("windows", {})
    named = dict.fromkeys(name for one in systems.values() for name in one["scores"])
    scores = [main, *(name for name in named if name != main and AT not in name)]
    yield table(
        [
            "system",
            "window",
            "examples",
            *map(_words, scores),
            "answer words",
            "searches",
            "found evidence",
            "fitted",
            "page",
            "tokens in / out",
            "no answer",
        ],
        [_row(name, windows.get(name), one, scores) for name, one in systems.items()],
    )
    for key, values in results["groups"].items():
        if len(values) > 1:
            rows = [
                [str(each["value"]), *_cells(each["systems"], systems, main)] for each in values
            ]
            yield f"{_words(main)} by {_words(key)}:"
            yield table([_words(key), *systems], rows)
    for family in dict.fromkeys(name.partition(AT)[0] for name in named if AT in name):
        points = [name.partition(AT)[2] for name in named if name.startswith(family + AT)]
        points.sort(key=number_or_last)
        curves = {
            name: one
            for name, one in systems.items()
            if _varies(one, [f"{family}{AT}{x}" for x in points])
        }
        if curves:
            yield f"{_words(family)} at, for systems for which it makes a difference:"
            rows = [[x, *_cells(curves, curves, f"{family}{AT}{x}")] for x in points]
            yield table(["", *curves], rows)


def _varies(one: JsonObject, scores: Sequence[str]) -> bool:
    return len({(one["scores"].get(score) or {}).get("mean") for score in scores}) > 1


def _row(name: str, window: int | None, one: JsonObject, scores: Sequence[str]) -> list[str]:
    fitted, page, words = one["share_fitted"], one.get("page_characters"), one.get("answer_words")
    searches = one.get("searches")
    errors = [f"{count} {code}" for code, count in one["errors"].items()]
    return [
        name,
        NONE if window is None else f"{window:,}",
        str(one["examples"]),
        *(_shown(one["scores"].get(score)) for score in scores),
        NONE if words is None else f"{words:.0f}",
        *((NONE, NONE) if searches is None else SearchMeans(**searches).shown()),
        NONE if fitted is None else f"{100 * fitted:.0f} % ({one['fitted_whole']} whole)",
        NONE if page is None else f"{page:,.0f} characters",
        f"{one['tokens_in_per_example']:,.0f} / {one['tokens_out_per_example']:,.0f}",
        ", ".join(errors) or "0",
    ]


def _cells(of: Cells, systems: Cells, score: str) -> list[str]:
    return [_shown(of[name]["scores"].get(score)) if name in of else NONE for name in systems]


def _shown(found: Mapping[str, Any] | None) -> str:
    return read_estimate(found).shown(2) if found else NONE


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _words(name: str) -> str:
    return name.replace("_", " ")
