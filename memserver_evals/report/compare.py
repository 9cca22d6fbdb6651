"""Two runs, or two systems of one, on the examples that both have played."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from memserver.errors import InvalidInput
from memserver.messages import JsonObject
from memserver_evals.catalog import ALIASES
from memserver_evals.runs.results import Row, read_rows
from memserver_evals.runs.run_folder import read_manifest
from memserver_evals.scoring.statistics import Difference, difference


@dataclass(frozen=True, slots=True)
class Side:
    folder: Path
    system: str
    manifest: JsonObject
    rows: Mapping[str, Row]

    @property
    def title(self) -> str:
        return f"{self.folder}:{self.system}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """B against A."""

    a: Side
    b: Side
    score: str  # which one
    # by what of the examples: "all", then `key=value` of the groups
    differences: Mapping[str, Difference]
    shared: int  # examples that both have; the others have no part in it
    only_a: int
    only_b: int


def open_side(named: str, other: str | None = None) -> Side:
    """The side that RUN or RUN:SYSTEM names.

    Raises InvalidInput: there is no such run or system, or it is not clear which.
    """
    folder, system = Path(named), None
    if not folder.is_dir() and ":" in named:
        before, _, system = named.rpartition(":")
        folder = Path(before)
    manifest = read_manifest(folder)
    try:
        rows = read_rows(folder)
    except OSError as error:
        raise InvalidInput(f"The run in {folder} has not ended: {error}") from error
    there = list(dict.fromkeys(row.system for row in rows))
    if system is None:
        system = there[0] if len(there) == 1 else other
    if system not in there:
        system = ALIASES.get(system or "", system)
    if system not in there:
        raise InvalidInput(
            f"Which system of {folder}? It has {', '.join(there)}.",
            hint=f"Name one: {folder}:{there[0]}.",
        )
    return Side(
        folder, system, manifest, {row.example: row for row in rows if row.system == system}
    )


def compare(a: str, b: str, score: str | None = None) -> Comparison:
    """Compare what two names stand for; which see `open_side`.

    Raises InvalidInput: they are of different tasks or data, share no examples, or have no such score.
    """
    side_b = _opened_if_clear(b)
    side_a = open_side(a, side_b.system if side_b else None)
    side_b = side_b or open_side(b, side_a.system)
    for name in ("task", "data_hash"):
        if side_a.manifest.get(name) != side_b.manifest.get(name):
            raise InvalidInput(
                f"The runs can't be compared: their {name.replace('_', ' ')} is "
                f"{side_a.manifest.get(name)} and {side_b.manifest.get(name)}."
            )
    shared = [example for example in side_a.rows if example in side_b.rows]
    if not shared:
        raise InvalidInput("The runs have no examples in common.")
    chosen = score or str(side_a.manifest["main_score"])
    known = set(side_a.rows[shared[0]].scores) & set(side_b.rows[shared[0]].scores)
    if chosen not in known:
        raise InvalidInput(
            f"There is no score {chosen!r}.", hint=f"Both have {', '.join(sorted(known))}."
        )
    found = {"all": _difference(side_a, side_b, shared, chosen)}
    for key in side_a.rows[shared[0]].groups:
        values = dict.fromkeys(side_a.rows[each].groups.get(key) for each in shared)
        if len(values) < 2:
            continue
        for value in sorted(values, key=lambda each: (isinstance(each, str), str(each).zfill(12))):
            own = [each for each in shared if side_a.rows[each].groups.get(key) == value]
            found[f"{key}={value}"] = _difference(side_a, side_b, own, chosen)
    return Comparison(
        side_a,
        side_b,
        chosen,
        found,
        len(shared),
        len(side_a.rows) - len(shared),
        len(side_b.rows) - len(shared),
    )


def _opened_if_clear(named: str) -> Side | None:
    try:
        return open_side(named)
    except InvalidInput as error:
        if error.message.startswith("Which system"):
            return None
        raise


def _difference(a: Side, b: Side, examples: Sequence[str], score: str) -> Difference:
    return difference(
        [a.rows[each].scores.get(score, math.nan) for each in examples],
        [b.rows[each].scores.get(score, math.nan) for each in examples],
        [a.rows[each].cluster for each in examples],
        name=f"{score} {len(examples)}",
    )
