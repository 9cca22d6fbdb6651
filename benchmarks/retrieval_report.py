"""The figures of `benchmarks.retrieval` for people: a table, and a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

_AT = (1, 5, 10, 20)


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
    figure, panels = pyplot.subplots(1, len(names), figsize=(4 * len(names), 4), squeeze=False)
    for name, axes in zip(names, panels[0], strict=True):
        theirs = [row for row in rows if row["data"] == name]
        for row in theirs:
            recalls = [row[f"recall_at_{k}"] for k in _AT]
            axes.plot(range(len(_AT)), recalls, marker="o", label=row["mode"])
        axes.set(title=f"{name}, {theirs[0]['questions']:,} questions", xlabel="k", ylim=(0, 1.02))
        axes.set_xticks(range(len(_AT)), [str(k) for k in _AT])
        axes.grid(alpha=0.3)
    panels[0][0].set(ylabel="recall@k")
    panels[0][0].legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(file, dpi=110)
