"""What the terminal client shows. Knows the client's values and events, but asks the server nothing."""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime

from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from typing_extensions import override

from memserver.cli.chat.wrapping import Wrapping, harmless
from memserver.cli.console import print_table
from memserver.client.events import (
    Event,
    MemoryChanged,
    MessageDelta,
    MessageSaid,
    Reconnected,
    SystemNote,
    Thought,
    ToolCalled,
    ToolReturned,
)
from memserver.client.models import Agent, ContextView, FoundPassage, Message, Section
from memserver.errors import MemserverError

SPOKEN = "send_message"
BAR_WIDTH = 24
MOST_OF_A_LINE = 160
_STATES = {"failed": "✗", "interrupted": "✗", "waiting": "…"}


class PlainDisplay:
    """For pipes: what the agent says, and nothing else."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def begin(self) -> None:
        """A message was sent."""

    def show(self, event: Event) -> None:
        """Something happened in its turn."""
        if isinstance(event, MessageSaid):
            self._console.out(harmless(event.text), highlight=False)

    def end(self) -> None:
        """Nothing more is shown of it."""


class TerminalDisplay(PlainDisplay):
    """For people: text while it is generated, and, dimmed, what the agent thinks and does."""

    def __init__(self, console: Console, name: str) -> None:
        super().__init__(console)
        self.thoughts = True
        self._name = name
        self._waiting = console.status(f"[dim]{name} is thinking …[/dim]", spinner="dots")
        self._wrapping: Wrapping | None = None
        self._step = 0
        self._heard = ""

    @override
    def begin(self) -> None:
        self._heard = ""
        self._wait()

    @override
    def show(self, event: Event) -> None:
        match event:
            case MessageDelta(step=step, text=text):
                self._hear(step, text)
            case MessageSaid(text=text):
                self._said(text)
            case Thought(text=text):
                self._aside(f"  ∙ {text}", italic=True)
            case ToolCalled(name=name, arguments=arguments) if name != SPOKEN:
                shown = {key: value for key, value in arguments.items() if key not in PLUMBING}
                self._aside(f"  → {name}({_arguments(shown)})")
            case ToolReturned(state=state, result=result) if result and result != "None":
                self._aside(f"  {_STATES.get(state, '←')} {result}")
            case SystemNote(text=text):
                self._aside(f"  ! {text}")
            case MemoryChanged(evicted=evicted):
                self._aside(f"  ~ {evicted} messages left the queue for the summary")
            case Reconnected():
                self._take_back()
                self._aside("  (the connection was lost; reading on)", always=True)
            case _:
                pass

    @override
    def end(self) -> None:
        self._waiting.stop()
        self._break()

    def _hear(self, step: int, text: str) -> None:
        if self._heard and step != self._step:
            self._take_back()
        self._step = step
        self._heard += text
        self._write(text)

    def _said(self, text: str) -> None:
        if not text.startswith(self._heard):
            self._take_back()
        self._write(text[len(self._heard) :])
        self._heard = ""
        self._break()
        self._wait()

    def _take_back(self) -> None:
        if self._heard:
            self._heard = ""
            self._break()
            self._aside("  (taken back)", always=True)

    def _write(self, text: str) -> None:
        if not text:
            return
        self._waiting.stop()
        if self._wrapping is None:
            head = f"{self._name} > "
            self._wrapping = Wrapping(self._console.width, len(head))
            self._console.print(Text(head, style="bold green"), end="", soft_wrap=True)
        self._put(self._wrapping.feed(text))

    def _break(self) -> None:
        if self._wrapping is not None:
            self._put(self._wrapping.flush() + "\n")
            self._wrapping = None

    def _put(self, text: str) -> None:
        self._console.print(Text(text), end="", soft_wrap=True)

    def _aside(self, text: str, *, italic: bool = False, always: bool = False) -> None:
        if self.thoughts or always:
            self._waiting.stop()
            self._break()
            style = "dim italic" if italic else "dim"
            self._console.print(
                Text(one_line(text), style=style), overflow="ellipsis", no_wrap=True
            )
            self._wait()

    def _wait(self) -> None:
        self._waiting.start()


PLUMBING = ("inner_thought", "request_heartbeat")
"""Arguments that every tool has."""


def one_line(text: str) -> str:
    """The text on one line, cut where it is long."""
    indent = len(text) - len(text.lstrip(" "))
    line = text[:indent] + " ".join(harmless(text).split())
    return line if len(line) <= MOST_OF_A_LINE else line[: MOST_OF_A_LINE - 1] + "…"


def fullness(view: ContextView, steps: int | None = None) -> Table:
    capacity = max(1, view.window - view.reserved)
    percent = round(100 * view.fullness)
    style = "red" if percent >= 90 else "yellow" if percent >= 70 else "green"
    bar = ProgressBar(
        total=capacity,
        completed=min(view.used, capacity),
        width=BAR_WIDTH,
        complete_style=style,
        finished_style=style,
    )
    label = f"context {percent} % of {capacity:,} tokens"
    if steps is not None:
        label += f" · {steps} step{'' if steps == 1 else 's'}"
    line = Table.grid(padding=(0, 1))
    line.add_row(bar, Text(label, style="dim"))
    return line


def context_table(view: ContextView) -> Table:
    table = Table("part", "tokens", "", box=None, header_style="dim")
    table.columns[1].justify = "right"
    for part in view.parts:
        bar = ProgressBar(
            total=max(1, view.window), completed=part.tokens, width=BAR_WIDTH, complete_style="cyan"
        )
        table.add_row(Text(part.name), f"{part.tokens:,}", bar)
    table.add_row(Text("kept free for the answer", style="dim"), f"{view.reserved:,}", "")
    return table


def print_agents(found: Sequence[Agent]) -> None:
    rows = [
        (
            agent.name,
            str(agent.id),
            model_of(agent),
            str(agent.message_count),
            when(agent.created_at),
        )
        for agent in found
    ]
    print_table(
        ("name", "id", "model", "messages", "created"),
        rows,
        empty="There are no agents yet. `memserver chat sam` makes one and talks with it.",
    )


def model_of(agent: Agent) -> str:
    return agent.model or "the server's"


def sections_text(sections: Iterable[Section]) -> Text:
    text = Text()
    for section in sections:
        text.append(section.name, style="bold")
        text.append(f"  {len(section.text)} of {section.limit} characters\n", style="dim")
        text.append(harmless(section.text) or "(empty)", style="" if section.text else "dim")
        text.append("\n\n")
    text.rstrip()
    return text


def messages_text(messages: Sequence[Message], name: str) -> Text:
    text = Text()
    for message in messages:
        who = {"assistant": name}.get(message.role, message.role)
        text.append(f"{when(message.created_at)} ", style="dim")
        text.append(f"{who}: ", style="bold")
        text.append(one_line(message.text) + "\n")
    text.rstrip()
    return text


def passages_text(passages: Sequence[FoundPassage]) -> Text:
    text = Text()
    for passage in passages:
        text.append(f"{when(passage.created_at)} ", style="dim")
        text.append(one_line(passage.text) + "\n")
    text.rstrip()
    return text


def error_text(error: MemserverError) -> Text:
    text = Text()
    text.append(harmless(error.message), style="red")
    if error.hint:
        text.append(f"\n{harmless(error.hint)}", style="dim")
    return text


def _arguments(arguments: dict[str, object]) -> str:
    return ", ".join(
        f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items()
    )


def when(at: datetime) -> str:
    return f"{at.astimezone():%Y-%m-%d %H:%M}"
