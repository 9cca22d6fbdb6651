"""What stands beside a conversation: the agent's memory as the MemGPT paper draws it, its stores, tools and timers."""

from dataclasses import dataclass

from fastapi.responses import Response

from memserver.client.models import ContextView
from memserver.console.routing import PageRouter
from memserver.console.visit import Visit, VisitDep
from memserver.errors import MemserverError

router = PageRouter()

TABS = {
    "memory": "Memory",
    "recall": "Recall",
    "archival": "Archival",
    "tools": "Tools",
    "timers": "Schedule",
}
PRESSURE = 0.7
"""The share of the window from which on the agent is alerted."""
WIDTH = 1000
"""Of the bar, in its own units."""


def known_tab(name: str) -> str:
    return name if name in TABS else "memory"


@dataclass(frozen=True, slots=True)
class WindowPart:
    """A part of the prompt, and where it begins and how wide it is in the bar's units; `label` is for people."""

    name: str
    label: str
    tokens: int
    start: float
    width: float


@dataclass(frozen=True, slots=True)
class WindowBar:
    """The window in tokens: its parts, and where the agent is alerted and messages are evicted."""

    view: ContextView
    segments: list[WindowPart]

    @property
    def alert_at(self) -> float:
        return self.full_at * PRESSURE

    @property
    def full_at(self) -> float:
        """Where the queue is evicted: what comes after it is kept free for the answer."""
        return WIDTH * (self.view.window - self.view.reserved) / max(1, self.view.window)

    @property
    def percent(self) -> int:
        return round(100 * self.view.fullness)


LABELS = {
    "instructions": "System instructions",
    "tools": "Tools",
    "working_context": "Working context",
    "summary": "Summary",
    "queue": "Queue",
}


def bar_of(view: ContextView) -> WindowBar:
    """The bar of a prompt: instructions and tools, which are fixed, before what changes."""
    tokens = {part.name: part.tokens for part in view.parts}
    order = [*LABELS, *(name for name in tokens if name not in LABELS)]
    segments, start = [], 0.0
    for name in order:
        if name in tokens:
            width = WIDTH * tokens[name] / max(1, view.window, view.used)
            label = LABELS.get(name, name)
            segments.append(WindowPart(name, label, tokens[name], round(start, 2), round(width, 2)))
            start += width
    return WindowBar(view, segments)


@router.get("/agents/{agent}/side/memory")
async def show_memory(visit: VisitDep, agent: str) -> Response:
    """Main context and external context; without the model's endpoint, what is known without it."""
    found = await visit.api.agents.get(agent)
    sections = (await visit.api.working_context.get(found.id)).sections
    view, problem = await _context(visit, agent)
    collections = await visit.api.archival.collections(agent, limit=20)
    own = next((each for each in collections.items if each.own), None)
    return visit.page(
        "side_memory.html",
        agent=found,
        sections=sections,
        bar=bar_of(view) if view else None,
        parts={part.name: part for part in view.parts} if view else {},
        problem=problem,
        passages=own.passage_count if own else None,
    )


async def _context(visit: Visit, agent: str) -> tuple[ContextView | None, MemserverError | None]:
    try:
        return await visit.api.agents.context(agent), None
    except MemserverError as error:
        return None, error
