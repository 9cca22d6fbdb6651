"""The figures of `benchmarks.archival` for people: a table, and a picture."""

from pathlib import Path
from typing import Any

from rich.table import Table


def table(result: dict[str, Any], target: dict[str, float]) -> Table:
    """One row for each collection, before and after changes."""
    made = Table(
        "passages",
        "",
        "p50 ms",
        f"p95 ms (≤ {target['p95_ms']:g})",
        f"recall@10 (≥ {target['recall_at_10']:g})",
        "hybrid p50 ms",
        "hybrid p95 ms",
        "CPU p50 p95",
        "hybrid CPU p50 p95",
        title=f"Top 10 by vector, all collections and {result['other_tenants']} other tenants together",
        caption=f"inserted in {result['insert_seconds']} s, indexed in {result['index_seconds']} s; "
        f"{result['bytes']['database'] / 2**20:.0f} MiB, of which vectors "
        f"{result['bytes']['vectors'] / 2**20:.0f}; load average {result['load_average']}",
    )
    for row in result["sizes"]:
        slow = "✓" if row["p95_ms"] <= target["p95_ms"] else "✗"
        lost = "✓" if row["recall_at_10"] >= target["recall_at_10"] else "✗"
        made.add_row(
            f"{row['size']:,}",
            "after changes" if row["changed"] else "",
            f"{row['p50_ms']:g}",
            f"{row['p95_ms']:g} {slow}",
            f"{row['recall_at_10']:.4f} {lost}",
            f"{row['hybrid_p50_ms']:g}",
            f"{row['hybrid_p95_ms']:g}",
            f"{row['cpu_p50_ms']:g} {row['cpu_p95_ms']:g}",
            f"{row['hybrid_cpu_p50_ms']:g} {row['hybrid_cpu_p95_ms']:g}",
        )
    return made


def draw(result: dict[str, Any], target: dict[str, float], file: Path) -> None:
    """Times and recall over the collections' sizes. Needs matplotlib, of the extra eval."""
    import matplotlib.ticker  # noqa: PLC0415 - of an extra

    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    figure, (times, recalls) = pyplot.subplots(1, 2, figsize=(11, 4.5))
    for changed, style in ((False, "-"), (True, ":")):
        rows = [row for row in result["sizes"] if row["changed"] is changed]
        sizes = [row["size"] for row in rows]
        after = ", after changes" if changed else ""
        for number, (name, label) in enumerate(
            (("p50_ms", "p50"), ("p95_ms", "p95"), ("hybrid_p95_ms", "hybrid, p95"))
        ):
            values = [row[name] for row in rows]
            times.plot(sizes, values, style, marker="o", color=f"C{number}", label=label + after)
        recalls.plot(
            sizes, [row["recall_at_10"] for row in rows], style, marker="o", label="vector" + after
        )
    times.axhline(target["p95_ms"], color="grey", ls="--", label="target of p95")
    recalls.axhline(target["recall_at_10"], color="grey", ls="--", label="target")
    times.set(title="Top 10, all sizes and 1,000 other tenants together", ylabel="ms")
    recalls.set(title="Recall against an exact scan", ylabel="recall@10")
    times.set_ylim(0, None)
    recalls.set_ylim(min(0.97, result["recall_at_10"] - 0.005), 1.002)
    for axes in (times, recalls):
        axes.set(xlabel="passages in the collection", xscale="log")
        axes.get_xaxis().set_major_formatter(matplotlib.ticker.StrMethodFormatter("{x:,.0f}"))
        axes.legend(fontsize=8)
        axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(file, dpi=110)
