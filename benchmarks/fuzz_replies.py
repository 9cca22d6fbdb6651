"""Broken replies of a model, by the thousand, against the parser of replies.

A reply must become a call or a ProtocolViolation, whose message the model is shown: a sentence of
bounded length. Everything else is a fault, and fails the run.

Run it: `python -m benchmarks.fuzz_replies [--replies N] [--seed S] [--json]`.
"""

import argparse
import json
import sys
import time
from collections import Counter
from dataclasses import asdict

from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.support.reply_outcomes import (
    Fault,
    first,
    outcomes,
)

FIRST_FAULTS = 5


def show(console: Console, counts: Counter[str], faults: list[Fault], slowest: float) -> None:
    """Print the table."""
    table = Table("outcome", "replies", "share")
    for kind, count in counts.most_common():
        table.add_row(kind, f"{count:,}", f"{count / counts.total():.1%}")
    console.print(table)
    console.print(f"The slowest reply took {slowest * 1000:.0f} ms of CPU.")
    for fault in faults[:FIRST_FAULTS]:
        console.print(f"{fault.kind}: {fault.what}\n  {fault.reply!r}", markup=False)


def main() -> None:
    """Make replies and parse them; fail where a fault was found."""
    parser = argparse.ArgumentParser(description="Broken replies against the parser of replies.")
    parser.add_argument("--replies", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print figures only, as JSON")
    asked = parser.parse_args()
    console = Console(stderr=True)
    raws = track(first(asked.replies, asked.seed), "parsing", total=asked.replies, console=console)
    start = time.monotonic()
    counts, faults, slowest = outcomes(raws)
    if asked.json:
        figures = {
            "replies": counts.total(),
            "outcomes": dict(counts.most_common()),
            "slowest_ms": round(slowest * 1000, 1),
            "seconds": round(time.monotonic() - start, 1),
            "faults": [asdict(fault) for fault in faults[:FIRST_FAULTS]],
        }
        print(json.dumps(figures, indent=2))
    else:
        show(Console(), counts, faults, slowest)
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
