"""What limits vLLM itself: the same prompts sent to it directly, under several of its settings.

Each setting is a vLLM of its own, or several that share the conversations; all are started at once, so that they load
beside one another, and then asked one after the other. One client process and several tell whether the client is the
limit; the busiest process of vLLM's that speaks HTTP, and of those that compute, tells which of them is: at 1 it can't
do more. Without the grammar an answer is as long as with it, but any words.

Run it: `python -m benchmarks.gpu_limits --bodies FILE [--json] [--seconds-left 360]`. FILE is what
`python -m benchmarks.gpu --save-bodies FILE` wrote. Without it a few prompts of the same size are made up.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.agents_under_load import Answering, past, said
from benchmarks.gpu import Row, Side, add_model_options, answering_of, numbers, save
from benchmarks.gpu_report import wide_console
from benchmarks.load import Clients, Conversation, in_slots
from benchmarks.model_server import ModelServer, starting_model_server, wait_until_ready
from benchmarks.recording import Recorded, recorded, replay
from benchmarks.usage import Group, watching
from memserver.llm.tool_schema import response_format_json
from memserver.tools.memory_tools import memory_tools
from memserver.tools.tool import SpecStyle
from tests.support.servers import temporary_folder


@dataclass(frozen=True, slots=True)
class Variant:
    """A setting of vLLM: arguments of `vllm serve`, and variables.

    Attributes:
        engines: servers that share the GPU, its cache and the conversations.
        grammar: whether answers are held to the schema.
    """

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    engines: int = 1
    grammar: bool = True


VARIANTS = {
    "api1": Variant(("--api-server-count", "1")),
    "api4": Variant(("--api-server-count", "4")),
    "api8": Variant(("--api-server-count", "8")),
    "rust": Variant(("--api-server-count", "1"), {"VLLM_USE_RUST_FRONTEND": "1"}),
    "api4-eager": Variant(("--api-server-count", "4", "--enforce-eager")),
    "api4-sync": Variant(("--api-server-count", "4", "--no-async-scheduling")),
    "api4-seqs64": Variant(("--api-server-count", "4", "--max-num-seqs", "64")),
    "api4-interval8": Variant(("--api-server-count", "4", "--stream-interval", "8")),
    "api4-free": Variant(("--api-server-count", "4"), grammar=False),
    "engines2": Variant(("--api-server-count", "1"), engines=2),
    "engines4": Variant(("--api-server-count", "1"), engines=4),
    "engines8": Variant(("--api-server-count", "1"), engines=8),
}
DEFAULT_VARIANTS = "api1,api4,api4-free,engines4"
ANSWER_TOKENS = 59
"""Of an answer that no grammar holds: as many as one of 240 characters has with it."""
SHARED = ["--gpu-memory-utilization", "0.2", "--kv-cache-memory-bytes"]
"""Of several on one GPU: a fixed cache, since none can measure what is free while the others load."""
_COLUMNS = ("turns_per_s", "p50_ms", "p95_ms", "first_delta_p50_ms", "prefix_cache_hit_ratio")


@dataclass(frozen=True, slots=True)
class Engines:
    """The servers of one variant, as one."""

    servers: tuple[ModelServer, ...]
    grammar: bool = True

    @property
    def urls(self) -> list[str]:
        """Where they answer."""
        return [server.url for server in self.servers]

    def wait_until_ready(self, deadline: float) -> None:
        """All answer. Raises RuntimeError, with the end of a log."""
        for server in self.servers:
            wait_until_ready(server, max(1.0, deadline - time.monotonic()))

    def reset_prefix_cache(self) -> bool:
        """Forget all prefixes; false where one can't."""
        were_reset = [server.reset_prefix_cache() for server in self.servers]
        return all(were_reset)

    def prefix_cache(self) -> tuple[float, float]:
        """Tokens looked up and found so far."""
        counts = [server.prefix_cache() for server in self.servers]
        return sum(looked_up for looked_up, _ in counts), sum(found for _, found in counts)

    def groups(self) -> dict[str, Group]:
        """Their processes by kind."""
        each = [server.groups() for server in self.servers]
        return {kind: partial(_together, [groups[kind] for groups in each]) for kind in each[0]}


def _together(groups: Sequence[Group]) -> set[int]:
    return set[int]().union(*(group() for group in groups))


@dataclass(frozen=True, slots=True)
class Load:
    """One load: how many conversations at once, from how many client processes."""

    agents: int
    clients: int


def loads(agents: Sequence[int], clients: int) -> list[Load]:
    """All loads in the order of what they tell, since the time may not suffice for all."""
    several = [Load(number, clients) for number in agents]
    alone = [Load(number, 1) for number in (max(agents), min(agents))] if clients > 1 else []
    return [*several, *dict.fromkeys(alone)]


def measure(
    server: Engines, load: Load, bodies: Recorded, clients: dict[int, Clients], turns: int
) -> Row:
    """One load on one server, the prefix cache empty at first."""
    side = Side()
    side.was_reset = server.reset_prefix_cache()
    looked_up, found = server.prefix_cache()
    talks = conversations(bodies if server.grammar else free(bodies), load.agents, turns)
    with watching(server.groups()) as usage:
        run = clients[load.clients].run(server.urls, "openai", in_slots(talks, load.agents))
    looked_up_then, found_then = server.prefix_cache()
    side.runs.append(run)
    side.usages.append(usage)
    side.looked_up, side.found = looked_up_then - looked_up, found_then - found
    return side.row(load.agents, "direct")


def conversations(bodies: Recorded, agents: int, turns: int) -> list[Conversation]:
    """As many conversations as agents, cut to so many turns.

    Raises:
        ValueError: fewer were recorded.
    """
    if len(bodies) < agents:
        raise ValueError(f"{agents} conversations are asked for, but {len(bodies)} were recorded.")
    return [replay(bodies[number], stream=True)[:turns] for number in sorted(bodies)[:agents]]


def free(bodies: Recorded) -> Recorded:
    """The same requests without their grammar, answered in as many tokens."""
    return {
        number: {turn: [_free(body) for body in asked] for turn, asked in turns.items()}
        for number, turns in bodies.items()
    }


def _free(body: bytes) -> bytes:
    asked = {**json.loads(body), "max_tokens": ANSWER_TOKENS, "ignore_eos": True}
    asked.pop("response_format", None)
    return json.dumps(asked).encode()


def made_up(answering: Answering, agents: int, turns: int, messages: int) -> Recorded:
    """Requests of the kind that memserver makes, without memserver."""
    settings = answering.settings("")
    style = SpecStyle(thought_last=True, longest_text=answering.characters)
    tools = tuple(style.apply(tool).spec for tool in memory_tools())
    schema = json.loads(response_format_json(tools, json.loads(str(settings["llm_schema"]))))
    made: Recorded = {}
    for number in range(agents):
        talk = [{"role": m["role"], "content": m["text"]} for m in past(number, messages)]
        made[number] = {}
        for turn in range(1, turns + 1):
            talk.append({"role": "user", "content": said(number, turn)})
            body = {
                "model": answering.model,
                "max_tokens": answering.output_tokens,
                "temperature": 0,
                "messages": [{"role": "system", "content": "You are Sam."}, *talk],
                "response_format": schema,
            }
            made[number][turn] = [json.dumps(body).encode()]
            answer = {"tool": "send_message", "arguments": {"message": said(number, -turn, 40)}}
            talk.append({"role": "assistant", "content": json.dumps(answer)})
    return made


@contextmanager
def servers(asked: argparse.Namespace, folder: Path) -> Iterator[dict[str, Engines]]:
    """All variants, loading; or the one that runs already."""
    if asked.vllm_url:
        yield {"running": Engines((ModelServer(asked.vllm_url.rstrip("/").removesuffix("/v1")),))}
        return
    with ExitStack() as stack:
        started = {}
        for name in asked.variants:
            variant = VARIANTS[name]
            cache = str(asked.cache_bytes // variant.engines)
            options = [*variant.arguments, *SHARED, cache]
            several = [
                starting_model_server(folder, asked.vllm_command, options, variant.environment)
                for _ in range(variant.engines)
            ]
            servers = tuple(stack.enter_context(each) for each in several)
            started[name] = Engines(servers, variant.grammar)
        yield started


def measured(asked: argparse.Namespace, deadline: float, say: Console) -> Iterator[Row]:
    """One row for each variant and load that there was time for."""
    clients = {count: Clients(count) for count in {1, asked.clients}}
    try:
        with temporary_folder() as folder, servers(asked, folder) as started:
            bodies: Recorded = recorded(asked.bodies) if asked.bodies else {}
            for name, server in started.items():
                try:
                    server.wait_until_ready(deadline)
                except RuntimeError as error:
                    say.print(f"{name}: {error}", markup=False)
                    yield {"variant": name, "failed": str(error)[-500:]}
                    continue
                say.print(f"{name} is ready, {deadline - time.monotonic():.0f} s are left")
                answering = answering_of(server.servers[0], asked)
                bodies = bodies or made_up(answering, max(asked.agents), asked.turns, asked.past)
                warm = Load(min(asked.agents), asked.clients)
                measure(server, warm, bodies, clients, turns=1)
                for load in loads(asked.agents, asked.clients):
                    if time.monotonic() > deadline:
                        yield {"variant": name, **_load(load), "failed": "no time was left"}
                        continue
                    row = measure(server, load, bodies, clients, asked.turns)
                    yield {"variant": name, **_load(load), **row}
    finally:
        for pool in clients.values():
            pool.close()


def table(rows: Sequence[Row]) -> Table:
    """One row for each variant and load."""
    names = [name.replace("_", " ") for name in _COLUMNS]
    made = Table(
        "variant",
        "agents",
        "clients",
        *names,
        "GPU %",
        "busiest api",
        "busiest engine",
        "busiest client",
        "errors",
    )
    for row in rows:
        if "failed" in row:
            made.add_row(
                row["variant"],
                str(row.get("agents", "")),
                str(row.get("clients", "")),
                row["failed"][-60:],
            )
            continue
        busiest = row["busiest_process"]
        shown = [*(row[name] for name in _COLUMNS), row["gpu_percent"]]
        shown += [busiest["vllm_api"], busiest["vllm_engine"], row["client_cpu"], row["errors"]]
        made.add_row(row["variant"], str(row["agents"]), str(row["clients"]), *map(_shown, shown))
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print a table; with --json one JSON object is the last line."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_model_options(parser)
    parser.set_defaults(clients=8)
    parser.add_argument("--agents", type=numbers, default=(64, 128, 192, 256))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--bodies", type=Path, help="what `benchmarks.gpu --save-bodies` wrote")
    parser.add_argument("--past", type=int, default=18, help="past messages of made-up prompts")
    parser.add_argument("--characters", type=int, default=240)
    parser.add_argument(
        "--variants",
        type=lambda text: text.split(","),
        default=DEFAULT_VARIANTS.split(","),
        help=f"of {', '.join(VARIANTS)}",
    )
    parser.add_argument(
        "--cache-bytes", type=int, default=12_000_000_000, help="of a variant's engines together"
    )
    parser.add_argument("--seconds-left", type=float, default=360)
    asked = parser.parse_args(arguments)
    if unknown := set(asked.variants) - set(VARIANTS):
        parser.error(f"no such variants: {', '.join(unknown)}")
    say = Console(stderr=True)
    rows: list[Row] = []
    for row in measured(asked, time.monotonic() + asked.seconds_left, say):
        rows.append(row)
        say.print(f"{row['variant']}: {row.get('agents')} agents, {row.get('turns_per_s')} turns/s")
        save(asked.out, {"rows": rows})
    wide_console().print(table(rows))
    if asked.json:
        print(json.dumps({"rows": rows}))
    return 0


def _load(load: Load) -> dict[str, Any]:
    return {"agents": load.agents, "clients": load.clients}


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


if __name__ == "__main__":
    sys.exit(main())
