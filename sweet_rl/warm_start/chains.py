"""What is learnt from: chains of messages with the agent's turns marked, in gzipped JSON lines.

Knows nothing of the server, so that training needs only its own libraries.
"""

import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Lesson:
    message: int  # its place among the chain's messages
    kind: str  # what the user's message is about
    goal: str  # what a right turn holds, word for word; empty where any words will do


@dataclass(frozen=True, slots=True)
class Chain:
    messages: tuple[dict[str, str], ...]
    lessons: tuple[Lesson, ...]


def write_chains(path: Path, batches: Iterable[Chain]) -> int:
    part = path.with_suffix(".part")
    written = 0
    with gzip.open(part, "wt", encoding="utf-8") as file:
        for chain in batches:
            file.write(json.dumps(asdict(chain), ensure_ascii=False) + "\n")
            written += 1
    part.replace(path)
    return written


def read_chains(path: Path) -> Iterator[Chain]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            yield _chain(json.loads(line))


def _chain(line: dict[str, Any]) -> Chain:
    lessons = tuple(Lesson(**lesson) for lesson in line["lessons"])
    return Chain(tuple(line["messages"]), lessons)
