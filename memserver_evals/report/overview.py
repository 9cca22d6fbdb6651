"""Several runs in one picture: a group of bars for each run, in it one bar for each system."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from memserver.errors import InvalidInput
from memserver_evals.report.plots import colour_of, draw_png, finish_bars
from memserver_evals.runs.results import RESULTS


@dataclass(frozen=True, slots=True)
class Bars:
    """A run's main score by system: mean, and the interval's ends where there is one."""

    title: str
    systems: Mapping[str, tuple[float, float | None, float | None]]


def overview(runs: Sequence[Path]) -> bytes:
    """A PNG of the main scores of runs that have ended.

    Raises InvalidInput: a folder has no results, or they can't be read; SetupError: matplotlib isn't installed.
    """
    found = [_read(run) for run in runs]
    tasks = Counter(run["task"] for run, _ in found)
    bars = [
        Bars(_title(run, score, several=tasks[run["task"]] > 1), systems)
        for run, (score, systems) in found
    ]
    names = list(dict.fromkeys(name for each in bars for name in each.systems))
    width = 2.5 + sum(0.4 + 0.22 * len(each.systems) for each in bars)
    return draw_png(partial(_draw, bars=bars, names=names), 4.2, max(7.5, width))


def _read(run: Path) -> tuple[Any, Any]:
    path = run / RESULTS
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
        score = results["main_score"]
        means = {name: one["scores"][score] for name, one in results["systems"].items()}
        systems = {
            name: (each["mean"], each["low"], each["high"])
            for name, each in means.items()
            if each["mean"] is not None
        }
        return results["run"], (score, systems)
    except FileNotFoundError as error:
        raise InvalidInput(f"{run} has no {RESULTS}.", hint="Let the run end first.") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{path} can't be read: {error!r}") from error


def _title(run: Mapping[str, Any], score: str, *, several: bool) -> str:
    lines = [str(run["task"]), score.replace("_", " ")]
    if several:
        lines.append(str(run.get("model", {}).get("name") or "no model"))
    return "\n".join(lines)


def _draw(axes: Any, bars: Sequence[Bars], names: Sequence[str]) -> None:  # noqa: ANN401 - untyped
    place, centres = 0.0, []
    labelled: set[str] = set()
    for group in bars:
        start = place
        for name in (name for name in names if name in group.systems):
            mean, low, high = group.systems[name]
            label = None if name in labelled else name
            labelled.add(name)
            axes.bar(place, mean, width=0.92, color=colour_of(name, names), label=label)
            if low is not None and high is not None:
                ends = [[max(0.0, mean - low)], [max(0.0, high - mean)]]
                axes.errorbar(place, mean, yerr=ends, color="#20262d", capsize=2, lw=1, fmt="none")
            place += 1
        centres.append((start + place - 1) / 2)
        place += 1.5
    axes.set_ylim(0, 1.08)
    axes.set_xticks(centres, [group.title for group in bars])
    finish_bars(axes)
