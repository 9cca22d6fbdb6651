"""How much of the prompts vLLM finds in its prefix cache, with the working context before the messages and after them.

Conversations of 30 turns run at once. Before every third turn the working context is edited through the API, as a tool
would; the agents' windows are made so that each conversation has two evictions, which are counted and must be so many.
Both settings of prompt_order are measured in turns (first, last, last, first), the cache emptied before each.

Run it: `python -m benchmarks.prefix_cache [--json] [--conversations 4] [--turns 30] [--vllm-url http://127.0.0.1:8000]`.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
from rich.console import Console
from rich.table import Table

from benchmarks.agents_under_load import Answering, call, create_agents, message, said
from benchmarks.gpu import Row, Side, add_model_options, answering_of, first_figures, save
from benchmarks.gpu_report import wide_console
from benchmarks.load import Clients, Conversation, Request, Run, Turn, in_slots
from benchmarks.model_server import ModelServer, model_server
from benchmarks.usage import watching
from memserver.memory.queue import LEAST_OUTPUT
from tests.support.servers import memserver, temporary_folder

ORDERS = ("working_context_first", "working_context_last")
ORDER = (ORDERS[0], ORDERS[1], ORDERS[1], ORDERS[0])
EDITED_EVERY = 3
EVICTIONS = 2
SCALE_TURNS = 3
"""Turns in which the scale of the token counts is learnt."""
SAMPLE_TURNS = 3
QUEUE_SHARE = 0.63
"""Of all that is said, what fits the queue."""
EDITED, PLAIN = "edited", "plain"
_COLUMNS = (
    "prefix_cache_hit_ratio",
    "first_character_p50_ms",
    "first_character_p95_ms",
    "edited_first_character_p50_ms",
    "plain_first_character_p50_ms",
    "p50_ms",
    "turns_per_s",
    "steps",
    "prompt_tokens",
    "output_tokens",
    "errors",
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured: conversations at once, their turns, the words of a message."""

    conversations: int = 4
    turns: int = 30
    words: int = 60


def conversation(agent: str, number: int, plan: Plan) -> Conversation:
    """One conversation with its edits, which are not timed."""
    turns = []
    for turn in range(1, plan.turns + 1):
        edited = turn % EDITED_EVERY == 0
        if edited:
            turns.append(Turn((_edit(agent, number, turn),), timed=False))
        asked = message(agent, said(number, turn, plan.words), stream=True)
        turns.append(Turn((asked,), label=EDITED if edited else PLAIN))
    return turns


async def window_for(url: str, plan: Plan, output_tokens: int) -> int:
    """The window in which a conversation has its two evictions, by what a few turns take.

    The queue first overflows after about two thirds of the turns. That leaves half of it, and the summary takes up to a
    sixth of the prompt: the second eviction comes before the last turn, the third would come after it.

    Raises:
        RuntimeError: the server refused.
    """
    [agent] = await create_agents(url, [0], 0)
    async with aiohttp.ClientSession(url) as session:
        edit = _edit(agent, 0, 1)
        await call(session, edit.method, edit.path, json.loads(edit.body))
        used = []
        for turn in range(1, SCALE_TURNS + SAMPLE_TURNS + 1):
            text = {"text": said(0, turn, plan.words)}
            await call(session, "POST", f"/v1/agents/{agent}/messages", text)
            used.append((await call(session, "GET", f"/v1/agents/{agent}/context"))["used"])
    each = (used[-1] - used[SCALE_TURNS - 1]) / SAMPLE_TURNS
    fixed: float = used[-1] - each * len(used)
    queue: float = each * plan.turns * QUEUE_SHARE
    return round(fixed + min(output_tokens, LEAST_OUTPUT) + queue)


@dataclass(frozen=True)
class Stage:
    """All that runs while the orders are measured."""

    plan: Plan
    model: ModelServer
    url: str
    clients: Clients
    options: dict[str, Any]

    def measure(self, order: str, into: Side) -> None:
        """All conversations once, with this order."""
        numbers = range(self.plan.conversations)
        options = {**self.options, "prompt_order": order}
        agents = asyncio.run(create_agents(self.url, numbers, 0, options))
        talks = [
            conversation(agent, n, self.plan) for agent, n in zip(agents, numbers, strict=True)
        ]
        into.was_reset &= self.model.reset_prefix_cache()
        looked_up, found = self.model.prefix_cache()
        with watching(self.model.groups()) as usage:
            run = self.clients.run([self.url], "memserver", in_slots(talks, len(talks)))
        looked_up_then, found_then = self.model.prefix_cache()
        into.runs.append(run)
        into.usages.append(usage)
        into.looked_up += looked_up_then - looked_up
        into.found += found_then - found


def row(order: str, side: Side, conversations: int) -> Row:
    """The figures of one order; its evictions are those that the streams reported, in each run."""
    figures = side.row(conversations, order)
    well = [outcome for run in side.runs for outcome in run.outcomes if not outcome.error]
    for label in (EDITED, PLAIN):
        first = first_figures([outcome for outcome in well if outcome.label == label])
        figures[f"{label}_first_character_p50_ms"] = first["first_character_p50_ms"]
    figures["evictions_of_each_run"] = [evictions(run) for run in side.runs]
    figures["edits_failed"] = sum(len(run.unprepared) for run in side.runs)
    return figures


def evictions(run: Run) -> int:
    """Of all conversations of a run."""
    return sum(outcome.evictions for outcome in run.outcomes)


def complaints(rows: Sequence[Row], plan: Plan) -> list[str]:
    """Why the figures are not what they should be, if so."""
    wanted = EVICTIONS * plan.conversations
    found = []
    for figures in rows:
        order = figures["side"]
        if any(count != wanted for count in figures["evictions_of_each_run"]):
            counts = figures["evictions_of_each_run"]
            found.append(
                f"{order}: {wanted} evictions were wanted in each run, there were {counts}."
            )
        if figures["errors"] or figures["edits_failed"]:
            found.append(f"{order}: turns failed: {figures['error']}")
        if not figures["prefix_cache_was_reset"]:
            found.append(f"{order}: the prefix cache could not be reset.")
    return found


def measure(plan: Plan, asked: argparse.Namespace, say: Console) -> list[Row]:
    """Both orders' rows."""
    clients = Clients(min(asked.clients, plan.conversations))
    sides = {order: Side() for order in ORDERS}
    try:
        with (
            temporary_folder() as home,
            model_server(asked.vllm_url, home, command=asked.vllm_command) as model,
        ):
            # Evictions come in the turn that finds no room, so that they come at the same turn each time.
            settings = _answering(model, asked).settings(model.url, home=home, jobs_at_once=0)
            with memserver(home, settings, "--workers", str(asked.workers)) as server:
                window = asked.window or asyncio.run(
                    window_for(server.url, plan, asked.output_tokens)
                )
                say.print(
                    f"windows of {window} tokens, {asked.output_tokens} of them for the output"
                )
                stage = Stage(plan, model, server.url, clients, {"context_window": window})
                for order in ORDER:
                    stage.measure(order, sides[order])
                    reported = f"{order}: {evictions(sides[order].runs[-1])} evictions"
                    say.print(reported)
    finally:
        clients.close()
    return [row(order, side, plan.conversations) for order, side in sides.items()]


def table(rows: Sequence[Row]) -> Table:
    """The orders side by side."""
    made = Table("figure", *(figures["side"] for figures in rows))
    for name in (*_COLUMNS, "evictions_of_each_run"):
        made.add_row(name.replace("_", " "), *(str(figures[name]) for figures in rows))
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print a table; with --json one JSON object is the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_model_options(parser)
    plan = Plan()
    parser.add_argument("--conversations", type=int, default=plan.conversations)
    parser.add_argument("--turns", type=int, default=plan.turns)
    parser.add_argument("--words", type=int, default=plan.words, help="of a message")
    parser.add_argument("--characters", type=int, default=240, help="of an answer")
    parser.add_argument("--output-tokens", type=int, default=384, help="kept free for an answer")
    parser.add_argument("--window", type=int, help="tokens; default: what brings two evictions")
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args(arguments)
    plan = Plan(asked.conversations, asked.turns, asked.words)
    rows = measure(plan, asked, Console(stderr=True))
    wrong = complaints(rows, plan)
    figures = {"rows": rows, "complaints": wrong}
    save(asked.out, figures)
    wide_console().print(table(rows))
    for complaint in wrong:
        print(complaint, file=sys.stderr)
    if asked.json:
        print(json.dumps(figures))
    return 1 if wrong else 0


def _answering(model: ModelServer, asked: argparse.Namespace) -> Answering:
    found = answering_of(model, asked)
    return Answering(found.model, found.characters, found.tokenizer, asked.output_tokens)


def _edit(agent: str, number: int, turn: int) -> Request:
    """What a tool would have written into a section of the working context."""
    body = json.dumps({"text": said(number, 1000 + turn, 25)})
    path = f"/v1/agents/{agent}/working-context/human"
    return Request(path, body.encode(), "PATCH")


if __name__ == "__main__":
    sys.exit(main())
