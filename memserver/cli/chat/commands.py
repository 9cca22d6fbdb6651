"""The slash commands of the terminal client."""

import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table
from rich.text import Text

from memserver.cli.chat.screen import (
    TerminalDisplay,
    context_table,
    fullness,
    messages_text,
    passages_text,
    print_agents,
    sections_text,
)
from memserver.client import Client
from memserver.client.models import Agent, Message
from memserver.errors import InvalidInput

SHOWN = 10
NOTHING_SAID = Text("Nothing was said yet.", style="dim")
NO_SECTIONS = Text("The working context has no sections.", style="dim")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command is given: to which agent, and where its answer is shown."""

    client: Client
    agent: Agent
    console: Console
    display: TerminalDisplay | None
    editor: str


@dataclass(frozen=True, slots=True)
class Command:
    """One command: how it is written, what it does."""

    usage: str
    purpose: str
    run: Callable[[Place, str], None]


class Quit(Exception):
    """The user wants to leave."""


def run(place: Place, line: str) -> None:
    """Do what a line such as `/search otters` says.

    Raises:
        Quit: the conversation is over.
        MemserverError: it can't be done.
    """
    name, _, rest = line[1:].partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        raise InvalidInput(f"There is no command /{name}.", hint="/help lists them.")
    command.run(place, rest.strip())


def _help(place: Place, _: str) -> None:
    table = Table.grid(padding=(0, 2))
    for command in COMMANDS.values():
        table.add_row(Text(command.usage, style="bold"), command.purpose)
    table.add_row(Text("//text", style="bold"), "say a text that begins with a slash")
    place.console.print(table)


def _memory(place: Place, _: str) -> None:
    found = place.client.working_context.get(place.agent.id)
    place.console.print(sections_text(found.sections) or NO_SECTIONS)


def _edit(place: Place, rest: str) -> None:
    name, _, text = rest.partition(" ")
    sections = place.client.working_context.get(place.agent.id)
    try:
        section = sections[name]
    except KeyError:
        names = ", ".join(each.name for each in sections.sections)
        raise InvalidInput(
            f"There is no section {name!r}." if name else "Which section?",
            hint=f"/edit SECTION [TEXT], where the sections are: {names}.",
        ) from None
    new = text or _in_editor(place, section.text)
    if new is None or new == section.text:
        place.console.print(Text("Nothing was changed.", style="dim"))
        return
    place.client.working_context.edit(place.agent.id, name, text=new)
    place.console.print(Text(f"{name} is changed; it counts from the next step on.", style="dim"))


def _in_editor(place: Place, text: str) -> str | None:
    if place.display is None:
        raise InvalidInput("Without a terminal there is no editor.", hint="/edit SECTION TEXT")
    with TemporaryDirectory() as folder:
        file = Path(folder) / "section.txt"
        file.write_text(text + "\n", encoding="utf-8")
        try:
            done = subprocess.run([*shlex.split(place.editor), str(file)], check=False)
        except OSError as error:
            raise InvalidInput(
                f"The editor {place.editor!r} can't be run: {error.strerror}.",
                hint="Set EDITOR to one, or write /edit SECTION TEXT.",
            ) from error
        return None if done.returncode else file.read_text(encoding="utf-8").rstrip("\n")


def _search(place: Place, words: str) -> None:
    if not words:
        raise InvalidInput("What for?", hint="/search WORDS")
    said = place.client.recall.search(place.agent.id, words, ignore_case=True)
    kept = place.client.archival.search(place.agent.id, words)
    heading = (
        f"{said.total} messages have these words" if said.total else "no message has these words"
    )
    place.console.print(Text(f"Said: {heading}", style="bold"))
    if said.items:
        place.console.print(messages_text(said.items, place.agent.name))
    heading = (
        f"the nearest of {kept.total}" if kept.total else "it is empty; /archive TEXT fills it"
    )
    place.console.print(Text(f"Archival storage: {heading}", style="bold"))
    if kept.items:
        place.console.print(passages_text(kept.items))


def _archive(place: Place, text: str) -> None:
    if not text:
        raise InvalidInput("What is to be kept?", hint="/archive TEXT")
    place.client.archival.insert(place.agent.id, [text])
    place.console.print(Text("It is in the archival storage.", style="dim"))


def _history(place: Place, rest: str) -> None:
    if rest and not rest.isdecimal():
        raise InvalidInput("A number of messages is wanted.", hint="/history 20")
    wanted = int(rest or SHOWN)
    found: list[Message] = []
    for message in place.client.messages.all(place.agent.id):
        if len(found) >= wanted:
            break
        if message.text and message.role != "system":
            found.append(message)
    place.console.print(messages_text(found[::-1], place.agent.name) or NOTHING_SAID)


def _context(place: Place, _: str) -> None:
    view = place.client.agents.context(place.agent.id)
    place.console.print(fullness(view))
    place.console.print(context_table(view))


def _agents(place: Place, _: str) -> None:
    print_agents(list(place.client.agents.all()))
    place.console.print(Text("memserver chat NAME talks with another one.", style="dim"))


def _thoughts(place: Place, rest: str) -> None:
    if place.display is None:
        raise InvalidInput("Without a terminal none are shown.")
    place.display.thoughts = {"on": True, "off": False}.get(rest, not place.display.thoughts)
    state = "shown" if place.display.thoughts else "hidden"
    place.console.print(Text(f"Thoughts and tool calls are {state}.", style="dim"))


def _quit(_: Place, __: str) -> None:
    raise Quit


COMMANDS = {
    "memory": Command("/memory", "show the working context", _memory),
    "edit": Command("/edit SECTION [TEXT]", "change a section, in your editor or at once", _edit),
    "search": Command("/search WORDS", "search what was said and the archival storage", _search),
    "archive": Command("/archive TEXT", "put a passage into the archival storage", _archive),
    "history": Command("/history [N]", "show what was said last", _history),
    "context": Command("/context", "show what the prompt is made of, and how full it is", _context),
    "agents": Command("/agents", "list the server's agents", _agents),
    "thoughts": Command("/thoughts [on|off]", "show or hide thoughts and tool calls", _thoughts),
    "help": Command("/help", "show this", _help),
    "quit": Command("/quit", "leave; so does Ctrl-D", _quit),
}
