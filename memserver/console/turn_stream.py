"""A turn as server-sent events for htmx: each is a part of the page, which says itself where it goes.

A connection begins with an empty turn and what is known of it, so that one that was lost is simply made again.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from uuid import UUID

from memserver.client import ServerUnreachable
from memserver.client.awaiting import AsyncStream
from memserver.client.events import Event
from memserver.client.models import ToolCall
from memserver.console.visit import Visit
from memserver.errors import MemserverError
from memserver.wire.events import (
    ActionRequired,
    MemoryChanged,
    MessageDelta,
    MessageSaid,
    SystemNote,
    Thought,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnQueued,
)

PING_SECONDS = 15
PLACES_PER_TURN = 1000
"""A message's position is its turn's number times this, and its place within the turn."""
RETRY = "retry: 1000\n\n"
"""How soon a browser connects again after the server went away, in milliseconds."""


@dataclass(frozen=True, slots=True)
class StreamedStep:
    """What is known of one entry of the history, as events bring it part by part."""

    position: int
    role: str = "assistant"
    text: str = ""
    thought: str = ""
    tool_call: ToolCall | None = None
    pictures: tuple[object, ...] = ()
    tokens: int | None = None


@dataclass
class _Turn:
    """What was shown so far.

    Attributes:
        steps: by their positions.
        typing: the step whose text is being shown while it is written.
    """

    visit: Visit
    agent: UUID
    number: int
    steps: dict[int, StreamedStep] = field(default_factory=dict)
    typing: int | None = None

    def show(self, event: Event) -> Iterator[str]:
        match event:
            case MessageDelta(step=step, text=text):
                yield self.frame("delta", "delta.html", text=text, first=self.typing != step)
                self.typing = step
            case Thought(position=position, text=text):
                yield from self._step(position, thought=text)
            case ToolCalled():
                call = ToolCall(
                    id=event.id,
                    name=event.name,
                    arguments=event.arguments,
                    state="running",
                    result=None,
                    finished_at=None,
                )
                yield from self._step(event.position, tool_call=call)
            case ToolReturned(position=position, state=state, result=result):
                before = self.steps[position].tool_call
                assert before is not None
                call = before.model_copy(update={"state": state, "result": result})
                yield from self._step(position, tool_call=call)
            case MessageSaid():
                yield from self._step(
                    event.position,
                    role=event.role,
                    text=event.text,
                    thought=event.thought,
                    tool_call=event.tool_call,
                    pictures=tuple(event.pictures),
                    tokens=event.tokens,
                )
            case SystemNote(position=position, text=text):
                yield from self._step(position, role="system", text=text)
            case MemoryChanged():
                yield self.frame("step", "evicted.html", event=event)
            case TurnQueued(blocked_by=call):
                yield self.frame("status", "turn_status.html", queued=call)
                yield on_wire("done", "")
            case TurnEnded():
                yield self.frame("status", "turn_status.html", ended=event)
                yield on_wire("done", "")
            case _:
                pass

    def wait(self, position: int) -> Iterator[str]:
        call = self.steps[position].tool_call
        assert call is not None
        yield from self._step(position, tool_call=call.model_copy(update={"state": "waiting"}))

    def _step(self, position: int, **known: object) -> Iterator[str]:
        new = position not in self.steps
        step = replace(self.steps.get(position, StreamedStep(position)), **known)  # type: ignore[arg-type]
        self.steps[position] = step
        self.typing = None
        yield self.frame("step", "step.html", message=step, new=new)

    def frame(self, name: str, template: str, **values: object) -> str:
        html = self.visit.render(template, agent_id=self.agent, number=self.number, **values)
        return on_wire(name, html)


async def frames(visit: Visit, agent: UUID, number: int) -> AsyncIterator[str]:
    """The turn's events until it has ended or waits for an answer."""
    turn = _Turn(visit, agent, number)
    yield RETRY + turn.frame("step", "turn_reset.html")
    said = False
    try:
        async for event in _read_ahead(visit.api.turns.events(agent, number)):
            if event is None:
                yield ": ping\n\n"
                continue
            if not said:
                said = True
                yield await _said(turn)
            if isinstance(event, ActionRequired):
                for each in turn.wait(event.position):
                    yield each
                yield await _waiting(turn)
                yield on_wire("done", "")
            for each in turn.show(event):
                yield each
    except ServerUnreachable:
        return  # the server goes: the browser asks the next one
    except MemserverError as error:
        yield turn.frame("status", "turn_status.html", error=error)
        yield on_wire("done", "")


async def _said(turn: _Turn) -> str:
    """What the turn answers, which the page may not have: another page sent it, or a timer."""
    first = turn.number * PLACES_PER_TURN
    page = await turn.visit.api.messages.list(turn.agent, after=first - 1, limit=1, order="asc")
    found = [message for message in page.items if message.position == first]
    return turn.frame("step", "turn_said.html", found=found)


async def _waiting(turn: _Turn) -> str:
    """The call that waits, with what answers it."""
    calls = await turn.visit.api.calls.list(turn.agent, limit=1)
    found = next(iter(calls.items), None)
    if found is None:
        return turn.frame("status", "turn_status.html")
    return turn.frame("status", "turn_status.html", waiting=found)


async def _read_ahead(events: AsyncStream) -> AsyncIterator[Event | None]:
    """The events; None after each while without one, so that no proxy takes the connection for dead.

    A task of its own reads them: it closes the stream itself, when this is left within a wait, too.
    """
    read: asyncio.Queue[Event | MemserverError | None] = asyncio.Queue()

    async def reading() -> None:
        async with events:
            try:
                async for event in events:
                    read.put_nowait(event)
                read.put_nowait(None)
            except MemserverError as error:
                read.put_nowait(error)

    task = asyncio.create_task(reading())
    try:
        while True:
            try:
                event = await asyncio.wait_for(read.get(), PING_SECONDS)
            except TimeoutError:
                yield None
                continue
            if event is None:
                return
            if isinstance(event, MemserverError):
                raise event
            yield event
    finally:
        task.cancel()


def on_wire(name: str, html: str) -> str:
    """One event; htmx joins the lines again."""
    data = "".join(f"data: {line}\n" for line in html.splitlines() or [""])
    return f"event: {name}\n{data}\n"
