"""`report.html`: one page that holds all it shows, and the pictures as files beside it."""

import base64
import json
import math
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from memserver.messages import JsonObject
from memserver_evals.report.plots import draw_all, families
from memserver_evals.runs.results import Table, worst
from memserver_evals.runs.run_folder import read_course, write_whole
from memserver_evals.runs.runner import RunOutcome
from memserver_evals.scoring.statistics import Estimate
from memserver_evals.task import Exchange

REPORT = "report.html"
MOST_PROMPT = 12_000
"""Characters of a prompt in the page; the whole is in played.jsonl."""
MOST_EXCHANGES = 12


def write_report(
    folder: Path, manifest: JsonObject, outcome: RunOutcome, gold: dict[str, str]
) -> Path:
    pictures = draw_all(outcome.table)
    for name, content in pictures.items():
        (folder / name).write_bytes(content)
    page = (
        _environment()
        .get_template("page.html.j2")
        .render(
            manifest=manifest,
            facts=[*_facts(manifest), *_course(folder)],
            table=outcome.table,
            windows=manifest.get("windows", {}),
            families=families(outcome.table),
            pictures=[
                (name, base64.b64encode(content).decode("ascii"))
                for name, content in pictures.items()
            ],
            worst={name: _worst(outcome, name, gold) for name in outcome.table.systems},
            no_verdict=_no_verdict(outcome.table),
            cut=[
                row for row in outcome.rows if row.share_fitted is not None and row.share_fitted < 1
            ],
        )
    )
    write_whole(folder / REPORT, page + "\n")
    return folder / REPORT


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(estimate=_shown, number=_number, words=_words)
    return made


def _facts(manifest: JsonObject) -> list[tuple[str, str]]:
    hidden = {"format", "task", "about", "systems", "examples", "windows"}
    return [
        (_words(name), _fact(value))
        for name, value in manifest.items()
        if name not in hidden and value not in (None, {}, [], "")
    ]


def _course(folder: Path) -> Iterator[tuple[str, str]]:
    """When it was played, how long that took, by which command and where."""
    course = read_course(folder)
    if course is None:
        return
    began, ended = (f"{time:%-d %B %Y, %H:%M}" for time in (course.began, course.ended))
    took = timedelta(seconds=round(course.seconds))
    yield (
        "played",
        f"{began} to {ended} UTC, in {took}" if began != ended else f"{began} UTC, in {took}",
    )
    yield "command", " ; ".join(course.commands)
    yield "machine", " ; ".join(course.machines)


def _fact(value: object) -> str:
    if isinstance(value, dict):
        parts = [f"{_words(name)} {_fact(each)}" for name, each in value.items() if each]
        return ", ".join(parts)
    return value if isinstance(value, str) else json.dumps(value)


def _no_verdict(table: Table) -> list[tuple[str, str]]:
    """For each judge, on how many answers of which system it gave none."""
    found: dict[str, list[str]] = {}
    for name in table.systems:
        for score, count in table.overall[name].unjudged.items():
            found.setdefault(score, []).append(f"{count} of {name}")
    return [(score, ", ".join(counts)) for score, counts in found.items()]


def _worst(outcome: RunOutcome, system: str, gold: dict[str, str]) -> list[JsonObject]:
    records = {(each.job.system, each.job.example): each.played for each in outcome.records}
    score = outcome.table.main_score
    found: list[JsonObject] = []
    for row in worst(outcome.rows, system, score):
        played = records[row.system, row.example]
        exchanges = [each for turn in played.turns for each in turn.reply.exchanges]
        exchanges += played.exchanges
        shown = exchanges[-MOST_EXCHANGES:]
        found.append(
            {
                "row": row,
                "score": _number(row.scores[score]),
                "said": [(turn.said, turn.reply.text) for turn in played.turns],
                "gold": gold.get(row.example, ""),
                "exchanges": [(each.purpose, _messages(each)) for each in shown],
                "left_out": len(exchanges) - len(shown),
            }
        )
    return found


def _messages(exchange: Exchange) -> list[JsonObject]:
    shown = [{"role": str(each.get("role", "")), "text": _text(each)} for each in exchange.prompt]
    return [*shown, {"role": "answer", "text": _text(exchange.answer)}]


def _text(message: JsonObject) -> str:
    content = message.get("content")
    text = content if isinstance(content, str) else "" if content is None else json.dumps(content)
    calls = message.get("tool_calls") or []
    shown = [f"{each['function']['name']}({each['function']['arguments']})" for each in calls]
    whole = "\n".join([text, *shown] if text else shown)
    if len(whole) <= MOST_PROMPT:
        return whole
    half = MOST_PROMPT // 2
    left_out = len(whole) - MOST_PROMPT
    return f"{whole[:half]}\n… [{left_out} characters left out] …\n{whole[-half:]}"


def _shown(found: Estimate | None) -> str:
    return "-" if found is None else found.shown()


def _number(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _words(name: str) -> str:
    return name.replace("_", " ")


def gold_answers(examples: Sequence[Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for example in examples:
        answers: Any = getattr(example, "answers", None) or getattr(example, "answer", "")
        found[example.id] = answers if isinstance(answers, str) else " | ".join(map(str, answers))
    return found
