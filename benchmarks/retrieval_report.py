"""The figures of `benchmarks.retrieval` for people: a table, and a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

_AT = (1, 5, 10, 20)
_ACROSS = 4
_STYLES = {"hybrid": "o-", "vector": "s--", "text": "^-"}


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """One row for each data set and mode, the best of each column in bold."""
    made = Table("data", "mode", "questions", *(f"recall@{k}" for k in _AT))
    for row in rows:
        cells = []
        for k in _AT:
            name = f"recall_at_{k}"
            best = max(other[name] for other in rows if other["data"] == row["data"])
            shown = f"{row[name]:.3f}"
            cells.append(f"[bold]{shown}[/]" if row[name] == best else shown)
        made.add_row(row["data"], row["mode"], f"{row['questions']:,}", *cells)
    return made


def draw(rows: Sequence[dict[str, Any]], file: Path) -> None:
    """Recall over k, a panel for each data set. Needs matplotlib, of the extra eval."""
    import matplotlib as mpl  # noqa: PLC0415 - of an extra

    mpl.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    names = list(dict.fromkeys(row["data"] for row in rows))
    across = min(len(names), _ACROSS)
    down = -(-len(names) // across)
    figure, panels = pyplot.subplots(down, across, figsize=(4 * across, 3.4 * down), squeeze=False)
    for number, axes in enumerate(panels.flat):
        if number >= len(names):
            axes.axis("off")
            continue
        theirs = [row for row in rows if row["data"] == names[number]]
        for row in theirs:
            recalls = [row[f"recall_at_{k}"] for k in _AT]
            style = _STYLES[row["mode"]]
            axes.plot(range(len(_AT)), recalls, style, markersize=5, label=row["mode"])
        axes.set(title=f"{names[number]}, {theirs[0]['questions']:,} questions", ylim=(-0.02, 1.02))
        axes.set_xticks(range(len(_AT)), [f"@{k}" for k in _AT])
        axes.grid(alpha=0.3)
        if number % across == 0:
            axes.set(ylabel="recall")
    panels[0][0].legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(file, dpi=110)
