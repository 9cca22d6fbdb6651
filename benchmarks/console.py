"""The console's page of an agent with a long history: first paint in a browser, and what the page weighs.

Everything is what a user runs: `memserver serve` on the embedded Postgres, a key that is entered once, Debian's Chromium without
a head. Each load is of a context of its own: nothing is cached.

Run it: `python -m benchmarks.console [--messages N] [--loads N] [--png FILE] [--json]`.
"""

import argparse
import json
import os
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page
from rich.console import Console
from rich.progress import Progress, track
from rich.table import Table

from benchmarks.turn_stage import WORDS, Stage, stage
from memserver.wiring.database import EMBEDDED_DATABASE
from tests.support.chromium import chromium
from tests.support.long_history import sentences, settle, write_history

QUEUE_MESSAGES = 100
BUDGET = {"first_paint_ms": 500, "weight_kb": 150}
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
ANSWER = "performance.getEntriesByType('navigation')[0].responseStart"
WEIGHT = """[...performance.getEntriesByType('resource'), ...performance.getEntriesByType('navigation')]
    .reduce((sum, each) => sum + each.transferSize, 0)"""


@dataclass(frozen=True)
class Figures:
    """Medians over the loads; `weight_kb` is of a load with nothing cached, in thousands of bytes."""

    messages: int
    loads: int
    first_paint_ms: float
    slowest_first_paint_ms: float
    answer_ms: float
    weight_kb: float
    load_average: float


def measure(messages: int, loads: int, png: Path | None, console: Console) -> Figures:
    with stage(seed=0) as on, chromium() as browser:
        agent = on.talker.create_agent()
        database = on.postgres.url(EMBEDDED_DATABASE)
        written = write_history(database, agent, messages, QUEUE_MESSAGES, sentences(WORDS, 0))
        with Progress(console=console, transient=True) as bar:
            task = bar.add_task(f"writing {messages:,} messages", total=messages // 2)
            for some in written:
                bar.advance(task, some)
        settle(database)
        load(browser, on, agent, None)  # the server's first page, which reads its templates
        found = [
            load(browser, on, agent, png)
            for _ in track(range(loads), "loading", console=console, transient=True)
        ]
    paints, answers, weights = zip(*found, strict=True)
    return Figures(
        messages=messages,
        loads=loads,
        first_paint_ms=round(statistics.median(paints), 1),
        slowest_first_paint_ms=round(max(paints), 1),
        answer_ms=round(statistics.median(answers), 1),
        weight_kb=round(max(weights) / 1000, 1),
        load_average=round(os.getloadavg()[0], 2),
    )


def load(browser: Browser, on: Stage, agent: str, png: Path | None) -> tuple[float, float, float]:
    """First contentful paint and the answer's first byte in ms, and the bytes of the page with all it loads."""
    context = browser.new_context(viewport={"width": 1360, "height": 900})
    try:
        sign_in(context.new_page(), on)
        page = context.new_page()
        page.goto(f"{on.server.url}/console/agents/{agent}", wait_until="networkidle")
        if png is not None:
            page.screenshot(path=png)
        return page.evaluate(PAINT), page.evaluate(ANSWER), page.evaluate(WEIGHT)
    finally:
        context.close()


def sign_in(page: Page, on: Stage) -> None:
    page.goto(f"{on.server.url}/console/sign-in")
    page.fill("input[name=key]", on.talker.api_key)
    page.press("input[name=key]", "Enter")
    page.wait_for_url("**/console/agents")
    page.close()


def show(figures: Figures, console: Console) -> None:
    table = Table("figure", "measured", "budget", title="The console's page of an agent")
    for name, value in asdict(figures).items():
        budget = BUDGET.get(name)
        mark = "" if budget is None else f"< {budget} {'✓' if value < budget else '✗'}"
        table.add_row(name, f"{value:g}", mark)
    console.print(table)


def main() -> None:
    """Measure, and print a table; with --json one JSON object is the last line."""
    parser = argparse.ArgumentParser(description="Measures the console's page of an agent.")
    parser.add_argument("--messages", type=int, default=1_000_000, help="an even number")
    parser.add_argument("--loads", type=int, default=10)
    parser.add_argument("--png", type=Path, help="file for a picture of the page")
    parser.add_argument("--json", action="store_true", help="end with the figures as JSON")
    asked = parser.parse_args()
    console = Console()
    figures = measure(asked.messages, asked.loads, asked.png, console)
    show(figures, console)
    if asked.json:
        print(json.dumps(asdict(figures)))


if __name__ == "__main__":
    main()
