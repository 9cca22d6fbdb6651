"""From what was played to tables: scores of examples, means with intervals, tokens, errors.

Everything here follows from the records, the verdicts and the task, so it is made again each time and
comes out the same.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from memserver.errors import InvalidInput
from memserver.messages import JsonObject
from memserver_evals.judging.base import Verdict
from memserver_evals.runs.records import Job, PlayedRecord, dump
from memserver_evals.runs.run_folder import read_lines, write_whole
from memserver_evals.runs.searches import Searches, SearchMeans, count_searches, mean_searches
from memserver_evals.scoring.statistics import Estimate, estimate
from memserver_evals.scoring.text import count_words
from memserver_evals.task import Example, Played, Sourced, Task

T = TypeVar("T")
RESULTS, EXAMPLES = "results.json", "examples.jsonl"
AT = "@"
"""Between a score's name and the number that it was measured at: `accuracy@10`."""


@dataclass(frozen=True, slots=True)
class Row:
    """One example through one system, scored."""

    system: str  # its name
    example: str  # its id
    groups: Mapping[str, str | int]  # where it belongs
    cluster: str  # what it is drawn together with
    scores: Mapping[str, float]  # the task's and the judges'; nan is none
    reward: float
    answer: str
    tokens_in: int
    tokens_out: int
    share_fitted: float | None = None  # the least of its turns; None where that means nothing
    error: str = ""  # why there is no answer, or none to one of several turns
    # of a page of search results, on average; None where there was none
    page_characters: float | None = None
    searches: Searches | None = None  # None where the system has none to make

    def as_json(self) -> JsonObject:
        fields: JsonObject = _plain(asdict(self))
        return fields

    @classmethod
    def read(cls, line: str) -> "Row":
        """From a line. Raises ValueError, KeyError or TypeError."""
        fields: dict[str, Any] = json.loads(line)
        fields["scores"] = {
            name: math.nan if value is None else float(value)
            for name, value in fields["scores"].items()
        }
        fields["reward"] = math.nan if fields["reward"] is None else float(fields["reward"])
        if (made := fields.get("searches")) is not None:
            fields["searches"] = Searches(**made)
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class Summary:
    scores: Mapping[str, Estimate]
    examples: int
    tokens_in: float
    tokens_out: float
    errors: Mapping[str, int]
    unjudged: Mapping[str, int]
    fitted_whole: int
    share_fitted: float | None
    page_characters: float | None
    answer_words: float
    searches: SearchMeans | None

    def as_json(self) -> JsonObject:
        return {
            "examples": self.examples,
            "scores": {name: _plain(asdict(each)) for name, each in self.scores.items()},
            "tokens_in": round(self.tokens_in * self.examples),
            "tokens_out": round(self.tokens_out * self.examples),
            "tokens_in_per_example": round(self.tokens_in, 2),
            "tokens_out_per_example": round(self.tokens_out, 2),
            "errors": dict(self.errors),
            "no_verdict": dict(self.unjudged),
            "fitted_whole": self.fitted_whole,
            "share_fitted": _plain(self.share_fitted),
            "page_characters": _plain(self.page_characters),
            "answer_words": round(self.answer_words, 2),
            "searches": _plain(asdict(self.searches)) if self.searches else None,
        }


@dataclass(frozen=True, slots=True)
class Table:
    """The systems' rows for all examples, and for each value of each group.

    `scores` are the columns, the main one first; those of `curves` are none.
    """

    main_score: str
    systems: tuple[str, ...]
    scores: tuple[str, ...]
    overall: Mapping[str, Summary]
    groups: Mapping[str, Mapping[str | int, Mapping[str, Summary]]] = field(default_factory=dict)
    # of groups that are numbers: all that the task has, also those that are not in the sample
    scales: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def curves(self) -> Mapping[str, Mapping[str, Mapping[str, Estimate]]]:
        """The scores that are named `name@x`, such as accuracy at a number of documents: name, x, system."""
        found: dict[str, dict[str, dict[str, Estimate]]] = {}
        for system, summary in self.overall.items():
            for score, measured in summary.scores.items():
                name, at, x = score.partition(AT)
                if at:
                    found.setdefault(name, {}).setdefault(x, {})[system] = measured
        return {
            name: dict(sorted(points.items(), key=lambda point: number_or_last(point[0])))
            for name, points in found.items()
        }

    def as_json(self) -> JsonObject:
        return {
            "main_score": self.main_score,
            "systems": {name: each.as_json() for name, each in self.overall.items()},
            "groups": {
                key: [
                    {"value": value, "systems": {name: each.as_json() for name, each in of.items()}}
                    for value, of in values.items()
                ]
                for key, values in self.groups.items()
            },
        }


def number_or_last(x: str) -> tuple[bool, float, str]:
    """To sort what curves are measured at: numbers by their size, then words."""
    return (False, float(x), x) if x.isdecimal() else (True, 0, x)


def score_all(
    task: Task[Any], records: Sequence[PlayedRecord], verdicts: Mapping[str, Mapping[Job, Verdict]]
) -> list[Row]:
    examples = {example.id: example for example in task.examples()}
    return [_row(task, examples[each.job.example], each, verdicts) for each in records]


def tabulate(task: Task[Any], rows: Sequence[Row]) -> Table:
    systems = tuple(dict.fromkeys(row.system for row in rows))
    named = dict.fromkeys(name for row in rows for name in row.scores)
    names = tuple(name for name in named if AT not in name)
    ordered = (task.main_score, *(name for name in names if name != task.main_score))
    overall = {
        system: _summary([row for row in rows if row.system == system], f"{system}")
        for system in systems
    }
    groups = {key: dict(_grouped(rows, key, systems)) for key in task.group_keys}
    return Table(task.main_score, systems, ordered, overall, groups, dict(_scales(task)))


def _scales(task: Task[Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    for key in task.group_keys:
        values = {task.groups(example)[key] for example in task.examples()}
        numbers = sorted(value for value in values if isinstance(value, int))
        if len(numbers) == len(values):
            yield key, tuple(numbers)


def write_results(folder: Path, manifest: JsonObject, table: Table, rows: Sequence[Row]) -> None:
    write_whole(folder / EXAMPLES, "".join(f"{dump(row.as_json())}\n" for row in rows))
    results = {"run": manifest, **table.as_json()}
    write_whole(folder / RESULTS, json.dumps(results, indent=2, ensure_ascii=False) + "\n")


def read_rows(folder: Path) -> list[Row]:
    """The rows of a run that has ended. Raises InvalidInput."""
    return read_lines(folder / EXAMPLES, Row.read)


def worst(rows: Sequence[Row], system: str, score: str, count: int = 10) -> list[Row]:
    """A system's examples with the lowest score below 1, the lowest first; equal ones in the run's order."""
    own = [row for row in rows if row.system == system and row.scores[score] < 1]
    return sorted(own, key=lambda row: row.scores[score])[:count]


def _row(
    task: Task[Any],
    example: Example,
    record: PlayedRecord,
    verdicts: Mapping[str, Mapping[Job, Verdict]],
) -> Row:
    played, job = record.played, record.job
    groups = dict(task.groups(example))
    cluster = str(groups.pop("cluster", job.example))
    judged = {column: _of_verdict(given[job]) for column, given in verdicts.items() if job in given}
    shares = [
        turn.reply.share_fitted for turn in played.turns if turn.reply.share_fitted is not None
    ]
    return Row(
        job.system,
        job.example,
        groups,
        cluster,
        {**task.score(example, played), **judged},
        task.reward(example, played),
        played.answer,
        sum(turn.reply.tokens_in for turn in played.turns),
        sum(turn.reply.tokens_out for turn in played.turns),
        min(shares, default=None),
        _error(played),
        _mean([turn.reply.page_characters for turn in played.turns]),
        count_searches(played, _evidence(task, example)),
    )


def _evidence(task: Task[Any], example: Example) -> frozenset[str]:
    return task.evidence(example) if isinstance(task, Sourced) else frozenset()


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _error(played: Played) -> str:
    if not played.turns:
        return str(played.outcome.get("error", ""))
    return next((turn.reply.error for turn in reversed(played.turns) if turn.reply.error), "")


def _of_verdict(verdict: Verdict) -> float:
    return math.nan if verdict.correct is None else float(verdict.correct)


def _grouped(
    rows: Sequence[Row], key: str, systems: Sequence[str]
) -> Iterator[tuple[str | int, dict[str, Summary]]]:
    values = {row.groups[key] for row in rows if key in row.groups}
    for value in sorted(values, key=lambda each: (isinstance(each, str), each)):
        yield (
            value,
            {
                system: _summary(own, f"{system} {key} {value}")
                for system in systems
                if (own := [r for r in rows if r.system == system and r.groups.get(key) == value])
            },
        )


def _summary(rows: Sequence[Row], name: str) -> Summary:
    names = dict.fromkeys(score for row in rows for score in row.scores)
    clusters = [row.cluster for row in rows]
    shares = [row.share_fitted for row in rows if row.share_fitted is not None]
    values = {each: [row.scores.get(each, math.nan) for row in rows] for each in names}
    return Summary(
        {each: estimate(values[each], clusters, name=f"{name} {each}") for each in names},
        len(rows),
        sum(row.tokens_in for row in rows) / len(rows),
        sum(row.tokens_out for row in rows) / len(rows),
        dict(sorted(Counter(row.error for row in rows if row.error).items())),
        {
            each: missing
            for each in names
            if each.startswith("judge_") and (missing := sum(map(math.isnan, values[each])))
        },
        sum(share >= 1 for share in shares),
        _mean(shares),
        _mean([row.page_characters for row in rows]),
        sum(count_words(row.answer) for row in rows) / len(rows),
        mean_searches([row.searches for row in rows]),
    )


def _plain(value: Any) -> Any:  # noqa: ANN401 - JSON
    """As it is kept: floats with six digits; nan, which JSON has not, is null."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, float):
        return None if math.isnan(value) else round(value, 6)
    return value


def read_results(run: Path, read: Callable[[JsonObject], T]) -> T:
    """What a function makes of a run's results.json. Raises InvalidInput where there is none, or it can't be read."""
    path = run / RESULTS
    try:
        return read(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise InvalidInput(f"{run} has no {RESULTS}.", hint="Let the run end first.") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInput(f"{path} can't be read: {error!r}") from error


def read_estimate(found: Mapping[str, Any]) -> Estimate:
    """An estimate as results.json has it."""
    mean, low, high = (
        math.nan if found[name] is None else float(found[name]) for name in ("mean", "low", "high")
    )
    return Estimate(mean, low, high, int(found["count"]))
