"""The figures of `benchmarks.gpu` for people: a table, and a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

_WIDTH = 200
_COLUMNS = (
    "turns_per_s",
    "p50_ms",
    "p95_ms",
    "first_character_p50_ms",
    "steps",
    "prompt_tokens",
    "output_tokens",
    "prefix_cache_hit_ratio",
    "gpu_percent",
    "errors",
)


def wide_console() -> Console:
    """Stdout, wide enough for a table also where it is no terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=_WIDTH)


def table(rows: Sequence[dict[str, Any]], target: float) -> Table:
    """One row for each number of agents and side."""
    names = [name.replace("_", " ") for name in _COLUMNS]
    made = Table("agents", "side", *names, "CPU cores", "client", "ratio")
    for row in rows:
        cores = " ".join(f"{name} {used:g}" for name, used in row["cpu_cores"].items())
        ratio = row.get("ratio")
        mark = "" if ratio is None else f"{ratio} {'✓' if ratio >= target else '✗'}"
        figures = [_shown(row[name]) for name in _COLUMNS]
        client = f"{row['client_processes']} at {row['client_cpu']:g}"
        made.add_row(str(row["agents"]), row["side"], *figures, cores, client, mark)
    return made


def draw(rows: Sequence[dict[str, Any]], target: float, file: Path) -> None:
    """Turns a second and the median turn over the number of agents. Needs matplotlib, of the extra eval."""
    import matplotlib.ticker  # noqa: PLC0415 - of an extra

    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    figure, (rate, time) = pyplot.subplots(1, 2, figsize=(11, 4.5))
    for side in dict.fromkeys(row["side"] for row in rows):
        ours = [row for row in rows if row["side"] == side]
        agents = [row["agents"] for row in ours]
        rate.plot(agents, [row["turns_per_s"] for row in ours], marker="o", label=side)
        time.plot(agents, [row["p50_ms"] for row in ours], marker="o", label=f"{side}, p50")
        time.plot(agents, [row["p95_ms"] for row in ours], marker=".", ls=":", label=f"{side}, p95")
    for row in rows:
        if row.get("ratio") is not None:
            spot = (row["agents"], row["turns_per_s"])
            rate.annotate(f"{row['ratio']:.2f}", spot, xytext=(0, -14), textcoords="offset points")
    rate.set(title=f"Turns a second (ratio; target ≥ {target:g})", ylabel="turns/s")
    time.set(title="A turn", ylabel="ms")
    for axes in (rate, time):
        axes.set(xlabel="agents at once", xscale="log", ylim=(0, 1.08 * axes.get_ylim()[1]))
        axes.set_xticks(sorted({row["agents"] for row in rows}))
        axes.get_xaxis().set_major_formatter(matplotlib.ticker.ScalarFormatter())
        axes.get_xaxis().set_minor_locator(matplotlib.ticker.NullLocator())
        axes.legend()
        axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(file, dpi=110)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"
