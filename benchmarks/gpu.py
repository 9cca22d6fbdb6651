"""Agent turns on a GPU: through memserver, and the very same prompts sent to vLLM directly.

Each agent has a past of random text and says --turns messages, one after the other's answer. A recording pass, which is
not measured, writes down what memserver asks the model. Then both sides are measured in turns (memserver, direct, direct,
memserver), the prefix cache emptied before each: memserver with fresh agents of the same past, direct with what was
recorded, as many conversations at once and in the same order. The schema of an answer holds it to one text.

Run it: `python -m benchmarks.gpu [--json] [--png FILE] [--agents 1,16,64,256] [--vllm-url http://127.0.0.1:8000]`. Without
a URL it starts vLLM by scripts/gpu_host.sh, whose variables (MODEL, VLLM_SITE, …) it passes on.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.agents_under_load import Answering, create_agents, messages_for, talk
from benchmarks.gpu_report import draw, table, wide_console
from benchmarks.load import Clients, Conversation, Outcome, Run, Speech, in_slots
from benchmarks.model_server import COMMAND, ModelServer, model_server
from benchmarks.recording import Recorded, recorded, recording_proxy, replay
from benchmarks.usage import Group, Usage, of_memserver, of_postgres, watching
from tests.support.servers import ServerProcess, memserver, temporary_folder

TARGET = 0.95
"""Of the turns a second that vLLM gives directly: the budget."""
ORDER = ("memserver", "direct", "direct", "memserver")
WARM_UP = 16
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured.

    Attributes:
        agents: at once.
        turns: of a conversation.
        context: tokens of the first prompt, about.
        characters: of an answer.
        least_turns: of one run; with few agents each has several conversations, one after the other.
        stream: whether answers are streamed.
        workers: processes of memserver.
        clients: processes that ask.
        rounds: how often the order of the sides is gone through.
    """

    agents: tuple[int, ...] = (1, 16, 64, 256)
    turns: int = 5
    context: int = 1500
    characters: int = 240
    least_turns: int = 100
    stream: bool = True
    workers: int = 4
    clients: int = 4
    rounds: int = 1

    def conversations(self, agents: int) -> int:
        """How many conversations one run has, a multiple of the agents."""
        waves = -(-self.least_turns // (agents * self.turns))
        return agents * max(1, waves)

    @property
    def most_conversations(self) -> int:
        """Of all runs."""
        return max(map(self.conversations, self.agents))


@dataclass
class Side:
    """What was measured of one side with one number of agents, in several runs."""

    runs: list[Run] = field(default_factory=list)
    usages: list[Usage] = field(default_factory=list)
    looked_up: float = 0.0
    found: float = 0.0
    was_reset: bool = True

    def row(self, agents: int, side: str) -> Row:
        """The figures; times are milliseconds."""
        outcomes = [outcome for run in self.runs for outcome in run.outcomes]
        well = [outcome for outcome in outcomes if not outcome.error]
        wall = sum(run.wall for run in self.runs)
        return {
            "agents": agents,
            "side": side,
            "turns": len(outcomes),
            "errors": len(outcomes) - len(well),
            "error": next((outcome.error for outcome in outcomes if outcome.error), None),
            "retries": sum(outcome.retries for outcome in outcomes),
            "turns_per_s": round(len(well) / wall, 2) if wall else None,
            "turns_per_s_of_each_run": [_rate(run) for run in self.runs],
            "p50_ms": milliseconds([o.seconds for o in well], 50),
            "p95_ms": milliseconds([o.seconds for o in well], 95),
            **first_figures(well),
            "steps": _mean([o.steps for o in well]),
            "prompt_tokens": _mean([o.prompt_tokens for o in well]),
            "output_tokens": _mean([o.output_tokens for o in well]),
            "prefix_cache_hit_ratio": round(self.found / self.looked_up, 4)
            if self.looked_up
            else None,
            "prefix_cache_was_reset": self.was_reset,
            "gpu_percent": _mean([u.gpu_percent for u in self.usages if u.gpu_percent is not None]),
            "cpu_cores": _by_group([usage.cores for usage in self.usages]),
            "busiest_process": _by_group([usage.busiest for usage in self.usages]),
            "client_processes": len(self.runs[0].client_cpu),
            "client_cpu": round(sum(max(run.client_cpu) for run in self.runs) / len(self.runs), 2),
        }


@dataclass(frozen=True)
class Stage:
    """All that runs while sides are measured."""

    plan: Plan
    model: ModelServer
    server: ServerProcess
    home: Path
    clients: Clients
    past_messages: int
    recorded: Recorded

    def measure(self, agents: int, side: str, into: Side) -> None:
        """One run of one side."""
        speech, url, conversations = self._prepared(agents, side)
        into.was_reset &= self.model.reset_prefix_cache()
        looked_up, found = self.model.prefix_cache()
        with watching(self._groups(side)) as usage:
            run = self.clients.run([url], speech, in_slots(conversations, agents))
        looked_up_then, found_then = self.model.prefix_cache()
        into.runs.append(run)
        into.usages.append(usage)
        into.looked_up += looked_up_then - looked_up
        into.found += found_then - found

    def _prepared(self, agents: int, side: str) -> tuple[Speech, str, list[Conversation]]:
        plan = self.plan
        numbers = range(min(plan.conversations(agents), plan.most_conversations))
        if side == "direct":
            found = [replay(self.recorded[number], stream=plan.stream) for number in numbers]
            return "openai", self.model.url, found
        made = asyncio.run(create_agents(self.server.url, numbers, self.past_messages))
        talks = [
            talk(agent, number, plan.turns, stream=plan.stream)
            for agent, number in zip(made, numbers, strict=True)
        ]
        return "memserver", self.server.url, talks

    def _groups(self, side: str) -> dict[str, Group]:
        ours: dict[str, Group] = {}
        if side == "memserver":
            ours = {"memserver": of_memserver(self.server), "postgres": of_postgres(self.home)}
        return self.model.groups() | ours


def milliseconds(seconds: Sequence[float], percentile: int) -> float | None:
    """A percentile of times, in milliseconds; None of nothing."""
    if not seconds:
        return None
    ordered = sorted(seconds)
    return round(1000 * ordered[min(len(ordered) - 1, len(ordered) * percentile // 100)], 1)


def first_figures(outcomes: Sequence[Outcome]) -> Row:
    """When the first character of the message came, and the first of anything; None where not streamed."""
    characters = [o.first_character for o in outcomes if o.first_character is not None]
    deltas = [o.first_delta for o in outcomes if o.first_delta is not None]
    return {
        "first_character_p50_ms": milliseconds(characters, 50),
        "first_character_p95_ms": milliseconds(characters, 95),
        "first_delta_p50_ms": milliseconds(deltas, 50),
    }


def measure(plan: Plan, stage: Stage, say: Console) -> Iterator[list[Row]]:
    """Both sides' rows for one number of agents after the other."""
    for agents in plan.agents:
        sides = {side: Side() for side in dict.fromkeys(ORDER)}
        for side in ORDER * plan.rounds:
            start = time.monotonic()
            stage.measure(agents, side, sides[side])
            run = sides[side].runs[-1]
            reported = f"{agents} agents, {side}: {_rate(run)} turns/s"
            say.print(f"{reported} ({time.monotonic() - start:.0f} s with its preparation)")
        rows = [sides[side].row(agents, side) for side in sides]
        rates = [row["turns_per_s"] for row in rows]
        rows[0]["ratio"] = round(rates[0] / rates[1], 3) if all(rates) else None
        yield rows


@contextmanager
def staged(plan: Plan, asked: argparse.Namespace, say: Console) -> Iterator[Stage]:
    """vLLM, what memserver asked it, and memserver before it, warm."""
    clients = Clients(plan.clients)
    try:
        with (
            temporary_folder() as home,
            model_server(asked.vllm_url, home, command=asked.vllm_command) as model,
        ):
            answering = answering_of(model, asked)
            say.print(f"vLLM serves {answering.model} at {model.url}")
            past, bodies = record(plan, model, answering, clients, home, say)
            if asked.save_bodies:
                asked.save_bodies.write_bytes(bodies.read_bytes())
            settings = answering.settings(model.url, home=home)
            with memserver(home, settings, "--workers", str(plan.workers)) as server:
                stage = Stage(plan, model, server, home, clients, past, recorded(bodies))
                for side in ("memserver", "direct"):
                    stage.measure(min(WARM_UP, max(plan.agents)), side, Side())
                yield stage
    finally:
        clients.close()


def record(
    plan: Plan,
    model: ModelServer,
    answering: Answering,
    clients: Clients,
    home: Path,
    say: Console,
) -> tuple[int, Path]:
    """Have all conversations through the recording proxy.

    Returns:
        How many past messages each agent has, and the file of what was asked.

    Raises:
        RuntimeError: a conversation failed.
    """
    bodies = home / "bodies.jsonl"
    numbers = range(plan.most_conversations)
    start = time.monotonic()
    with (
        recording_proxy(model.url, home, bodies) as proxy,
        memserver(
            home, answering.settings(proxy.url, home=home), "--workers", str(plan.workers)
        ) as server,
    ):
        past = asyncio.run(messages_for(server.url, plan.context))
        agents = asyncio.run(create_agents(server.url, numbers, past))
        talks = [talk(a, n, plan.turns, stream=False) for a, n in zip(agents, numbers, strict=True)]
        run = clients.run([server.url], "memserver", in_slots(talks, min(64, len(talks))))
        log = server.log_text()
    errors = [outcome.error for outcome in run.outcomes if outcome.error]
    if errors:
        raise RuntimeError(
            f"{len(errors)} turns failed while recording: {errors[0]}\n{log[-3000:]}"
        )
    found = recorded(bodies)
    whole = set(range(1, plan.turns + 1))
    if cut := [number for number in numbers if set(found.get(number, ())) != whole]:
        raise RuntimeError(f"Of {len(cut)} conversations not every turn was recorded.")
    sent = sum(len(bodies) for turns in found.values() for bodies in turns.values())
    seconds = time.monotonic() - start
    say.print(
        f"recorded {sent} requests of {len(run.outcomes)} turns, {past} past messages each ({seconds:.0f} s)"
    )
    return past, bodies


def answering_of(model: ModelServer, asked: argparse.Namespace) -> Answering:
    """How this server's model is asked."""
    name = model.card()["id"]
    tokenizer = asked.tokenizer or Path(os.environ.get("MODEL", "")) / "tokenizer.json"
    return Answering(name, asked.characters, str(tokenizer) if tokenizer.exists() else None)


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Options that say which model is asked, and by how many clients."""
    parser.add_argument("--vllm-url", help="a vLLM that runs, with VLLM_SERVER_DEV_MODE=1")
    parser.add_argument(
        "--vllm-command",
        type=str.split,
        default=COMMAND,
        help="starts vLLM at the port in PORT",
    )
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json; default: the one in MODEL")
    parser.add_argument("--clients", type=int, default=4, help="client processes")
    parser.add_argument("--out", type=Path, help="file for the figures as they come")
    parser.add_argument("--json", action="store_true", help="end with the figures as JSON")


def numbers(text: str) -> tuple[int, ...]:
    """A list of numbers, as 1,16,64."""
    return tuple(int(part) for part in text.split(","))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print a table; with --json one JSON object is the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_model_options(parser)
    plan = Plan()
    parser.add_argument("--agents", type=numbers, default=plan.agents)
    parser.add_argument("--turns", type=int, default=plan.turns)
    parser.add_argument("--context", type=int, default=plan.context)
    parser.add_argument("--characters", type=int, default=plan.characters)
    parser.add_argument("--least-turns", type=int, default=plan.least_turns)
    parser.add_argument("--rounds", type=int, default=plan.rounds)
    parser.add_argument("--workers", type=int, default=plan.workers)
    parser.add_argument("--whole", action="store_true", help="don't stream")
    parser.add_argument("--save-bodies", type=Path, help="file for what memserver asked")
    parser.add_argument("--png", type=Path, help="file for a picture")
    asked = parser.parse_args(arguments)
    plan = Plan(
        asked.agents,
        asked.turns,
        asked.context,
        asked.characters,
        asked.least_turns,
        not asked.whole,
        asked.workers,
        asked.clients,
        asked.rounds,
    )
    say = Console(stderr=True)
    rows: list[Row] = []
    figures = {"streamed": plan.stream, "workers": plan.workers, "target": TARGET, "rows": rows}
    with staged(plan, asked, say) as stage:
        for found in measure(plan, stage, say):
            rows += found
            save(asked.out, figures)
    wide_console().print(table(rows, TARGET))
    if asked.png:
        draw(rows, TARGET, asked.png)
    if asked.json:
        print(json.dumps(figures))
    return 1 if any(row["errors"] for row in rows) else 0


def save(file: Path | None, figures: object) -> None:
    """Write what is known so far."""
    if file is not None:
        file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def _rate(run: Run) -> float | None:
    well = sum(not outcome.error for outcome in run.outcomes)
    return round(well / run.wall, 2) if run.wall else None


def _mean(values: Sequence[float]) -> float | None:
    return round(statistics.mean(values), 2) if values else None


def _by_group(usages: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.mean(usage[name] for usage in usages), 2) for name in usages[0]}


if __name__ == "__main__":
    sys.exit(main())
