"""The picture of docs/scale.md: what was measured of one message and one turn, carried to many agents.

Run it: `python -m benchmarks.scale docs/pictures/scale.png`.
"""

import sys
from pathlib import Path

from memserver_evals.report.style import COLOURS, as_png, make_figure

AGENTS = [0, 5, 10]
"""Millions."""
MESSAGES, TURNS, TURNS_A_DAY, PEAK = 200, 100, 2, 4
"""Assumed of each agent: messages and turns kept, turns a day; and how many times the mean the busiest hour has."""
BYTES = {"messages": 620, "words": 940, "texts": 500, "vectors": 900}
"""Of a message of 350 characters, with indexes."""
AGENT_BYTES, TURN_BYTES = 8_300, 1_700
CPU = {"memserver and Postgres": 0.0129, "local embedder, two messages": 0.0368}
"""Seconds of a core a turn."""


def turns_a_second(agents: int) -> float:
    """In the busiest hour."""
    return agents * 1e6 * TURNS_A_DAY * PEAK / 86_400


def main() -> None:
    """Draw it."""
    figure = make_figure(figsize=(11, 4.4), layout="constrained")
    room, load = figure.subplots(1, 2)
    parts = {name: MESSAGES * size for name, size in BYTES.items()}
    parts |= {"turns": TURNS * TURN_BYTES, "the agent itself": AGENT_BYTES}
    below = [0.0] * len(AGENTS)
    for colour, (name, size) in zip(COLOURS, parts.items(), strict=False):
        top = [low + size * agents / 1e6 for low, agents in zip(below, AGENTS, strict=True)]
        room.fill_between(AGENTS, below, top, color=colour, label=name, linewidth=0)
        below = top
    room.set(title="Storage with indexes", ylabel="TB", ylim=(0, None))
    for colour, (name, seconds) in zip(COLOURS, CPU.items(), strict=False):
        cores = [seconds * turns_a_second(agents) for agents in AGENTS]
        load.plot(AGENTS, cores, marker="o", color=colour, label=name)
    load.set(title="Cores in the busiest hour", ylabel="cores", ylim=(0, None))
    for axes in (room, load):
        axes.set(xlabel="million agents", xlim=(0, AGENTS[-1]))
        axes.legend(loc="upper left")
        axes.grid()
    Path(sys.argv[1]).write_bytes(as_png(figure))


if __name__ == "__main__":
    main()
