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
class ChatContext:
    """Where a command is given: to which agent, and where its answer is shown."""

    client: Client
    agent: Agent
    console: Console
    display: TerminalDisplay | None
    editor: str


@dataclass(frozen=True, slots=True)
class Command:
    usage: str
    purpose: str
    run: Callable[[ChatContext, str], None]


class Quit(Exception):
    """The user wants to leave."""


def run(chat: ChatContext, line: str) -> None:
    """Do what a line such as `/search otters` says.

    Raises:
        Quit: the conversation is over.
        MemserverError: it can't be done.
    """
    name, _, rest = line[1:].partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        raise InvalidInput(f"There is no command /{name}.", hint="/help lists them.")
    command.run(chat, rest.strip())


def _help(chat: ChatContext, _: str) -> None:
    table = Table.grid(padding=(0, 2))
    for command in COMMANDS.values():
        table.add_row(Text(command.usage, style="bold"), command.purpose)
    table.add_row(Text("//text", style="bold"), "say a text that begins with a slash")
    chat.console.print(table)


def _memory(chat: ChatContext, _: str) -> None:
    found = chat.client.working_context.get(chat.agent.id)
    chat.console.print(sections_text(found.sections) or NO_SECTIONS)


def _edit(chat: ChatContext, rest: str) -> None:
    name, _, text = rest.partition(" ")
    sections = chat.client.working_context.get(chat.agent.id)
    try:
        section = sections[name]
    except KeyError:
        names = ", ".join(each.name for each in sections.sections)
        raise InvalidInput(
            f"There is no section {name!r}." if name else "Which section?",
            hint=f"/edit SECTION [TEXT], where the sections are: {names}.",
        ) from None
    new = text or _in_editor(chat, section.text)
    if new is None or new == section.text:
        chat.console.print(Text("Nothing was changed.", style="dim"))
        return
    chat.client.working_context.edit(chat.agent.id, name, text=new)
    chat.console.print(Text(f"{name} is changed; it counts from the next step on.", style="dim"))


def _in_editor(chat: ChatContext, text: str) -> str | None:
    if chat.display is None:
        raise InvalidInput("Without a terminal there is no editor.", hint="/edit SECTION TEXT")
    with TemporaryDirectory() as folder:
        file = Path(folder) / "section.txt"
        file.write_text(text + "\n", encoding="utf-8")
        try:
            done = subprocess.run([*shlex.split(chat.editor), str(file)], check=False)
        except OSError as error:
            raise InvalidInput(
                f"The editor {chat.editor!r} can't be run: {error.strerror}.",
                hint="Set EDITOR to one, or write /edit SECTION TEXT.",
            ) from error
        return None if done.returncode else file.read_text(encoding="utf-8").rstrip("\n")


def _search(chat: ChatContext, words: str) -> None:
    if not words:
        raise InvalidInput("What for?", hint="/search WORDS")
    said = chat.client.recall.search(chat.agent.id, words, ignore_case=True)
    kept = chat.client.archival.search(chat.agent.id, words)
    heading = (
        f"{said.total} messages have these words" if said.total else "no message has these words"
    )
    chat.console.print(Text(f"Said: {heading}", style="bold"))
    if said.items:
        chat.console.print(messages_text(said.items, chat.agent.name))
    heading = (
        f"the nearest of {kept.total}" if kept.total else "it is empty; /archive TEXT fills it"
    )
    chat.console.print(Text(f"Archival storage: {heading}", style="bold"))
    if kept.items:
        chat.console.print(passages_text(kept.items))


def _archive(chat: ChatContext, text: str) -> None:
    if not text:
        raise InvalidInput("What is to be kept?", hint="/archive TEXT")
    chat.client.archival.insert(chat.agent.id, [text])
    chat.console.print(Text("It is in the archival storage.", style="dim"))


def _history(chat: ChatContext, rest: str) -> None:
    if rest and not rest.isdecimal():
        raise InvalidInput("A number of messages is wanted.", hint="/history 20")
    wanted = int(rest or SHOWN)
    found: list[Message] = []
    for message in chat.client.messages.all(chat.agent.id):
        if len(found) >= wanted:
            break
        if message.text and message.role != "system":
            found.append(message)
    chat.console.print(messages_text(found[::-1], chat.agent.name) or NOTHING_SAID)


def _context(chat: ChatContext, _: str) -> None:
    view = chat.client.agents.context(chat.agent.id)
    chat.console.print(fullness(view))
    chat.console.print(context_table(view))


def _agents(chat: ChatContext, _: str) -> None:
    print_agents(list(chat.client.agents.all()))
    chat.console.print(Text("memserver chat NAME talks with another one.", style="dim"))


def _thoughts(chat: ChatContext, rest: str) -> None:
    if chat.display is None:
        raise InvalidInput("Without a terminal none are shown.")
    chat.display.thoughts = {"on": True, "off": False}.get(rest, not chat.display.thoughts)
    state = "shown" if chat.display.thoughts else "hidden"
    chat.console.print(Text(f"Thoughts and tool calls are {state}.", style="dim"))


def _quit(_: ChatContext, __: str) -> None:
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
