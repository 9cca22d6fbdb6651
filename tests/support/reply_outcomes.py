"""What comes of broken replies: a call, a violation that is reported to the model, or a fault."""

import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from memserver.errors import MemserverError, ProtocolViolation
from memserver.llm.reply_parser import RawReply, parse_json, parse_native
from tests.support.broken_replies import TOOLS, replies

LONGEST_MESSAGE = 1000
MOST_SECONDS = 1.0
"""Of CPU, for one reply."""
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
    message = violation.complaint
    (message + violation.message + violation.raw).encode()
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
