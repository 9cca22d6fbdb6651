"""The figures of `benchmarks.recall` for people: a table, and a picture."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table


def table(figures: Mapping[str, Any], targets: Mapping[str, float]) -> Table:
    """One row for each kind of search and size of agent."""
    made = Table(
        "search",
        "agent",
        "p50 ms",
        "p95 ms",
        "max ms",
        "CPU p95",
        "found",
        "target",
        title=_title(figures),
    )
    for row in figures["kinds"]:
        names = ("p50_ms", "p95_ms", "max_ms", "cpu_p95_ms")
        times = ["-" if row[name] is None else f"{row[name]:g}" for name in names]
        made.add_row(
            row["kind"], row["agent"], *times, str(row["median_total"]), _mark(row, targets)
        )
    return made


def draw(figures: Mapping[str, Any], targets: Mapping[str, float], file: Path) -> None:
    """The 95th percentile of each kind beside its target. Needs matplotlib, of the extra eval."""
    import matplotlib as mpl  # noqa: PLC0415 - of an extra

    mpl.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    names = list(dict.fromkeys(row["kind"] for row in figures["kinds"]))
    figure, axes = pyplot.subplots(figsize=(10, 0.45 * len(names) + 2))
    for shift, agent in ((-0.2, "large"), (0.2, "small")):
        rows = [row for row in figures["kinds"] if row["agent"] == agent]
        places = [names.index(row["kind"]) + shift for row in rows]
        axes.barh(places, [row["p95_ms"] for row in rows], height=0.36, label=f"{agent} agent")
    for row in figures["kinds"]:
        if row["target"] and row["agent"] == "large":
            place = names.index(row["kind"])
            axes.plot([targets[row["target"]]] * 2, [place - 0.42, place + 0.42], color="black")
    axes.plot([], [], color="black", label="target")
    axes.set(title=_title(figures), xlabel="p95, ms", xscale="log", yticks=range(len(names)))
    axes.set_yticklabels(names)
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=3)
    figure.savefig(file, dpi=110, bbox_inches="tight")


def _title(figures: Mapping[str, Any]) -> str:
    return f"Recall, {figures['messages']:,} messages, Postgres {figures['postgres']}"


def _mark(row: Mapping[str, Any], targets: Mapping[str, float]) -> str:
    if row["target"] is None:
        return ""
    target = targets[row["target"]]
    return f"≤ {target:g} {'✓' if row['p95_ms'] <= target else '✗'}"
