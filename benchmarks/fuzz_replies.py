"""Broken replies of a model, by the thousand, against the parser of replies.

A reply must become a call or a ProtocolViolation, whose message the model is shown: a sentence of
bounded length. Everything else is a fault, and fails the run.

Run it: `python -m benchmarks.fuzz_replies [--replies N] [--seed S] [--json]`.
"""

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.broken_replies import TOOLS, replies
from memserver.errors import MemserverError, ProtocolViolation
from memserver.llm.reply_parser import RawReply, parse_json, parse_native

LONGEST_MESSAGE = 1000
MOST_SECONDS = 1.0
"""Of CPU, for one reply."""
FIRST_FAULTS = 5
UNEXPECTED = (
    MemserverError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What is counted as a fault; anything else ends the run with its traceback."""


@dataclass(frozen=True)
class Fault:
    """What the parser must not do."""

    kind: str
    what: str
    reply: str


KINDS = {
    "no call in it": r"Your answer (was|had) ",
    "cut off at the limit": r"Your answer reached",
    "no JSON": r".* not valid JSON \(",
    "no such tool": r"There is no tool",
    "arguments that are no object": r"The arguments of \w+ must be",
    "argument missing": r"\w+ needs the argument",
    "argument unknown": r"\w+ has no argument",
    "argument of another type": r".* must be of type",
    "argument not among the choices": r".* must be one of",
    "argument too long": r".* characters; at most",
    "argument that does not fit": r".* does not fit",
}
"""What a violation says of the reply, by how its message starts."""


def outcome(raw: RawReply) -> str | Fault:
    """Parse a reply, as the adapter does; the kind of what came of it."""
    start = time.thread_time()
    try:
        parsed = parse_native(raw, TOOLS) if raw.calls else parse_json(raw, TOOLS)
        kind: str | Fault = "a call"
        json.dumps(
            [parsed.call.arguments, parsed.text], ensure_ascii=False, allow_nan=False
        ).encode()
    except ProtocolViolation as violation:
        kind = _kind_of(violation, raw)
    except UNEXPECTED as error:
        return Fault(type(error).__name__, str(error)[:300], repr(raw)[:600])
    took = time.thread_time() - start
    if took > MOST_SECONDS:
        return Fault("too slow", f"{took:.2f} s", repr(raw)[:600])
    return kind


def _kind_of(violation: ProtocolViolation, raw: RawReply) -> str | Fault:
    message = violation.message
    (message + violation.raw).encode()
    if len(message) > LONGEST_MESSAGE or not message.endswith("."):
        return Fault(
            "bad message", f"{len(message)} characters: …{message[-200:]}", repr(raw)[:600]
        )
    for kind, pattern in KINDS.items():
        if re.match(pattern, message, re.DOTALL):
            return kind
    return "another violation"


def outcomes(raws: Iterable[RawReply]) -> tuple[Counter[str], list[Fault], float]:
    """How many replies came to what, the faults, and the CPU seconds of the slowest reply."""
    counts: Counter[str] = Counter()
    faults: list[Fault] = []
    slowest = 0.0
    for raw in raws:
        start = time.thread_time()
        found = outcome(raw)
        slowest = max(slowest, time.thread_time() - start)
        if isinstance(found, Fault):
            faults.append(found)
            counts[f"FAULT: {found.kind}"] += 1
        else:
            counts[found] += 1
    return counts, faults, slowest


def first(count: int, seed: int) -> Iterator[RawReply]:
    """The first replies of a seed."""
    for _, raw in zip(range(count), replies(seed), strict=False):
        yield raw


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
