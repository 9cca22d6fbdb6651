"""The main scores of several runs side by side: what the one picture and the one table of a results page show."""

import math
import os.path
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memserver.errors import InvalidInput
from memserver.messages import JsonObject
from memserver_evals.catalog import ALIASES, FULL, SYSTEMS
from memserver_evals.runs.results import read_estimate, read_results
from memserver_evals.scoring.statistics import Estimate

BEGIN, END = "<!-- scores -->", "<!-- end of scores -->"
"""In a page, the lines between which the picture and the table stand."""


@dataclass(slots=True)
class Group:
    """The systems that played one task alike, in the order in which all pictures show them."""

    folder: Path  # of its first run
    run: JsonObject  # the manifest of that
    score: str
    means: dict[str, Estimate] = field(default_factory=dict)
    windows: dict[str, int | None] = field(default_factory=dict)

    @property
    def task(self) -> str:
        return str(self.run["task"])

    @property
    def model(self) -> str:
        return str(self.run.get("model", {}).get("name") or "no model")

    @property
    def count(self) -> int:
        """The examples of the system that has most."""
        return max(each.count for each in self.means.values())


def read_groups(named: Sequence[str]) -> list[Group]:
    """What runs (RUN, or RUN:SYSTEM for one of its systems) scored; those of one task, model and options are one group.

    Raises InvalidInput: a folder has no results, or they can't be read, or not of this system.
    """
    groups: list[Group] = []
    for name in named:
        found = _read(name)
        for group in groups:
            if _alike(group, found) and not group.means.keys() & found.means.keys():
                group.means |= found.means
                group.windows |= found.windows
                break
        else:
            groups.append(found)
    for group in groups:
        group.means = {name: group.means[name] for name in systems_of([group])}
    return groups


def systems_of(groups: Sequence[Group]) -> list[str]:
    """All of them: first those of the catalog, in its order."""
    there = dict.fromkeys(name for each in groups for name in each.means)
    return [
        *(name for name in SYSTEMS if name in there),
        *(name for name in there if name not in SYSTEMS),
    ]


def titles(groups: Sequence[Group]) -> list[list[str]]:
    """The lines above each group: task, score, and what else it takes to tell them apart."""
    found = [[each.task, each.score.replace("_", " ")] for each in groups]
    for more in ([each.model for each in groups], [each.folder.name for each in groups]):
        same = [found.count(title) > 1 for title in found]
        found = [
            [*title, line] if twice else title
            for title, line, twice in zip(found, more, same, strict=True)
        ]
    return found


def as_markdown(groups: Sequence[Group]) -> str:
    """A row for each system and a column for each task; below it how each was played."""
    named = [", ".join(title) for title in titles(groups)]
    lines = [["system", *named], ["---"] * (len(groups) + 1)]
    lines += [[f"`{name}`", *(_cell(each, name) for each in groups)] for name in systems_of(groups)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    played = "\n".join(
        f"- {title}: {_played(each)}" for title, each in zip(named, groups, strict=True)
    )
    return f"{table}\n\n{played}\n"


def put_into(page: Path, picture: Path, groups: Sequence[Group]) -> None:
    """Show picture and table in a page of Markdown, between `BEGIN` and `END`. Raises InvalidInput: it lacks those."""
    try:
        text = page.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{page} can't be read: {error}") from error
    before, begin, rest = text.partition(f"{BEGIN}\n")
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise InvalidInput(
            f"{page} has no place for scores.", hint=f"Write two lines into it: {BEGIN} and {END}"
        )
    shown = os.path.relpath(picture, page.parent).replace(os.sep, "/")
    alt = f"The main score of each system: {', '.join(each.task for each in groups)}"
    scores = f"![{alt}]({shown})\n\n{as_markdown(groups)}"
    page.write_text(f"{before}{BEGIN}\n{scores}{END}{after}", encoding="utf-8")


def _read(named: str) -> Group:
    folder, system = Path(named), ""
    if not folder.is_dir() and ":" in named:
        before, _, system = named.rpartition(":")
        folder, system = Path(before), ALIASES.get(system, system)
    group = read_results(folder, lambda results: _group(folder, results))
    if not system:
        return group
    if system not in group.means:
        raise InvalidInput(
            f"{folder} has no score of the system {system!r}.",
            hint=f"It has {', '.join(group.means)}.",
        )
    group.means = {system: group.means[system]}
    return group


def _group(folder: Path, results: JsonObject) -> Group:
    score = str(results["main_score"])
    means = {name: read_estimate(one["scores"][score]) for name, one in results["systems"].items()}
    known = {name: found for name, found in means.items() if not math.isnan(found.mean)}
    windows: Mapping[str, Any] = results["run"].get("windows", {})
    return Group(folder, results["run"], score, known, dict(windows))


def _alike(a: Group, b: Group) -> bool:
    return a.score == b.score and all(
        a.run.get(name) == b.run.get(name)
        for name in ("task", "model", "task_options", "data_hash")
    )


def _cell(group: Group, system: str) -> str:
    found = group.means.get(system)
    if found is None:
        return ""
    shown = re.sub(r"\b0\.", ".", found.shown(2))
    return shown if found.count == group.count else f"{shown}, n {found.count}"


def _played(group: Group) -> str:
    return ", ".join(_conditions(group))


def _conditions(group: Group) -> Iterator[str]:
    yield f"n {group.count}"
    yield from (f"{key}={value}" for key, value in group.run.get("task_options", {}).items())
    sizes = {
        f"{size:,}"
        for name, size in group.windows.items()
        if size is not None and name in group.means and name != FULL
    }
    if sizes:
        yield f"window {' or '.join(sorted(sizes))}"
    if (full := group.windows.get(FULL)) is not None and FULL in group.means:
        yield f"`full` {full:,}"
    yield f"model {group.model}"
    yield f"temperature {group.run.get('temperature', 0):g}"
