"""Agent turns on a GPU with several vLLM engines: each agent pinned to one of them for its prefix cache, and not.

Two memservers ask the same engines, and only MEMSERVER_LLM_PIN_AGENTS differs. They are measured in turns (pinned, unpinned,
unpinned, pinned), each time with fresh agents of the same past and with empty prefix caches. Conversations and answers are
those of `benchmarks.gpu`. The engines share the GPU: each has its part of --cache-bytes.

Run it: `python -m benchmarks.gpu_engines --engines 4 [--agents 16,64,256] [--json]`. It starts the engines by
scripts/gpu_host.sh, whose variables (MODEL, VLLM_SITE, …) it passes on; `--vllm-url URL,URL` takes those that run.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.agents_under_load import create_agents, messages_for, talk
from benchmarks.gpu import Plan, Row, Side, add_model_options, answering_of, numbers, save
from benchmarks.gpu_limits import SHARED, Engines
from benchmarks.gpu_report import wide_console
from benchmarks.load import Clients, in_slots
from benchmarks.model_server import START_SECONDS, ModelServer, starting_model_server
from benchmarks.usage import of_memserver, of_postgres, watching
from tests.support.servers import ServerProcess, memserver, temporary_folder

ORDER = ("pinned", "unpinned", "unpinned", "pinned")
_COLUMNS = (
    "agents",
    "side",
    "turns_per_s",
    "p50_ms",
    "p95_ms",
    "first_character_p50_ms",
    "prefix_cache_hit_ratio",
    "prompt_tokens",
    "gpu_percent",
    "errors",
)


@dataclass(frozen=True)
class Server:
    process: ServerProcess
    home: Path


@dataclass(frozen=True)
class Stage:
    """All that runs while sides are measured."""

    plan: Plan
    engines: Engines
    servers: dict[str, Server]
    clients: Clients
    past_messages: int

    def measure(self, agents: int, name: str, into: Side) -> None:
        """One run of one side."""
        plan, server = self.plan, self.servers[name]
        url, wanted = server.process.url, range(plan.conversations(agents))
        made = asyncio.run(create_agents(url, wanted, self.past_messages))
        talks = [talk(a, n, plan.turns, stream=True) for a, n in zip(made, wanted, strict=True)]
        into.was_reset &= self.engines.reset_prefix_cache()
        before = self.engines.prefix_cache()
        ours = {"memserver": of_memserver(server.process), "postgres": of_postgres(server.home)}
        with watching(self.engines.groups() | ours) as usage:
            run = self.clients.run([url], "memserver", in_slots(talks, agents))
        after = self.engines.prefix_cache()
        into.runs.append(run)
        into.usages.append(usage)
        into.looked_up += after[0] - before[0]
        into.found += after[1] - before[1]


@contextmanager
def staged(plan: Plan, asked: argparse.Namespace, say: Console) -> Iterator[Stage]:
    """The engines, ready, and both memservers before them."""
    with ExitStack() as stack:
        clients = Clients(plan.clients)
        stack.callback(clients.close)
        engines = Engines(tuple(_engines(stack, asked)))
        engines.wait_until_ready(time.monotonic() + START_SECONDS)
        answering = answering_of(engines.servers[0], asked)
        say.print(f"{len(engines.servers)} engines serve {answering.model}")
        servers = {}
        for name in dict.fromkeys(ORDER):
            home = stack.enter_context(temporary_folder())
            own = {"home": home, "llm_pin_agents": name == "pinned"}
            urls = ",".join(f"{url}/v1" for url in engines.urls)
            settings = answering.settings(engines.urls[0], **own, llm_base_url=urls)
            process = memserver(home, settings, "--workers", str(plan.workers))
            servers[name] = Server(stack.enter_context(process), home)
        past = asyncio.run(messages_for(servers["pinned"].process.url, plan.context))
        stage = Stage(plan, engines, servers, clients, past)
        for name in servers:
            stage.measure(min(16, max(plan.agents)), name, Side())
        yield stage


def _engines(stack: ExitStack, asked: argparse.Namespace) -> Iterator[ModelServer]:
    if asked.vllm_url:
        for url in asked.vllm_url.split(","):
            yield ModelServer(url.rstrip("/").removesuffix("/v1"))
        return
    folder = stack.enter_context(temporary_folder())
    options = ["--api-server-count", "1", *SHARED, str(asked.cache_bytes // asked.engines)]
    if asked.bare:
        options = []
    started = [
        starting_model_server(folder, asked.vllm_command, options) for _ in range(asked.engines)
    ]
    for each in started:
        yield stack.enter_context(each)


def measure(stage: Stage, say: Console) -> Iterator[list[Row]]:
    """Both sides' rows for one number of agents after the other."""
    plan = stage.plan
    for agents in plan.agents:
        sides = {name: Side() for name in stage.servers}
        for name in ORDER * plan.rounds:
            stage.measure(agents, name, sides[name])
            say.print(f"{agents} agents, {name}: {sides[name].row(agents, name)['turns_per_s']}")
        rows = [side.row(agents, name) for name, side in sides.items()]
        pinned, unpinned = (row["turns_per_s"] for row in rows)
        rows[0]["ratio"] = round(pinned / unpinned, 3) if pinned and unpinned else None
        yield rows


def table(rows: Sequence[Row]) -> Table:
    """One row for each number of agents and side."""
    made = Table(*(name.replace("_", " ") for name in _COLUMNS), "ratio")
    for row in rows:
        shown = (row.get(name) for name in (*_COLUMNS, "ratio"))
        made.add_row(*("-" if value is None else str(value) for value in shown))
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print a table; with --json one JSON object is the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_model_options(parser)
    parser.add_argument("--engines", type=int, default=4)
    parser.add_argument("--bare", action="store_true", help="start engines without vLLM's options")
    parser.add_argument("--cache-bytes", type=int, default=12_000_000_000, help="of all engines")
    parser.add_argument("--agents", type=numbers, default=(16, 64, 256))
    for name, default in (("turns", 5), ("context", 1500), ("characters", 240)):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, default in (("least-turns", 100), ("rounds", 1), ("workers", 4)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args(arguments)
    plan = Plan(
        agents=asked.agents,
        turns=asked.turns,
        context=asked.context,
        characters=asked.characters,
        least_turns=asked.least_turns,
        workers=asked.workers,
        clients=asked.clients,
        rounds=asked.rounds,
    )
    say, rows = Console(stderr=True), list[Row]()
    with staged(plan, asked, say) as stage:
        figures = {"engines": len(stage.engines.servers), "workers": plan.workers, "rows": rows}
        for found in measure(stage, say):
            rows += found
            save(asked.out, figures)
    wide_console().print(table(rows))
    if asked.json:
        print(json.dumps(figures))
    return 1 if any(row["errors"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
