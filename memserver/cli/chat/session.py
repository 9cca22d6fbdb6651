"""The command `chat`: reads lines, says them to the agent, and shows what comes of it."""

import importlib
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Annotated
from uuid import UUID

import typer
from rich.console import Console
from rich.text import Text

from memserver.cli.chat import commands
from memserver.cli.chat.commands import COMMANDS, ChatContext, Quit
from memserver.cli.chat.screen import PlainDisplay, TerminalDisplay, error_text, fullness
from memserver.cli.chat.waiting import Undecided, settle, waiting_call
from memserver.cli.options import ApiKeyOption, UrlOption, server_url
from memserver.cli.running_server import find_agent
from memserver.client import Client
from memserver.client.blocking import Stream
from memserver.client.events import ActionRequired, Thought, ToolCalled, TurnEnded, TurnQueued
from memserver.client.models import Agent
from memserver.errors import Conflict, MemserverError, NotFound

WELCOME = "/help lists the commands, Ctrl-D leaves"


def chat_command(
    agent: Annotated[str, typer.Argument(help="Its name or id.")],
    message: Annotated[
        str | None, typer.Option("--message", "-m", help="Say this, print the answer, and end.")
    ] = None,
    url: UrlOption = None,
    api_key: ApiKeyOption = None,
) -> None:
    """Talk with an agent. One that doesn't exist is made.

    /help lists the commands. Through a pipe each line is a message.
    """
    with Client(server_url(url), api_key=api_key) as client:
        _talk(client, agent, message)


def _talk(client: Client, name: str, message: str | None) -> None:
    """Talk at a terminal or through a pipe; without a terminal any error ends it."""
    console = Console(highlight=False, markup=False)
    person = message is None and sys.stdin.isatty() and console.is_terminal
    agent = _agent(client, name)
    display = TerminalDisplay(console, agent.name) if person else None
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    session = _Session(ChatContext(client, agent, console, display, editor))
    if person:
        session.talk()
    else:
        session.pipe(sys.stdin if message is None else [message])


def _agent(client: Client, name: str) -> Agent:
    """The agent; one that doesn't exist is made, which is said, since the name may be mistyped."""
    try:
        return find_agent(client, name)
    except NotFound:
        if _is_id(name):
            raise
    made = client.agents.create(name)
    print(f"There was no agent {name}: it is made now.", file=sys.stderr)
    return made


def _is_id(name: str) -> bool:
    try:
        return bool(UUID(name))
    except ValueError:
        return False


class _Session:
    def __init__(self, chat: ChatContext) -> None:
        self._chat = chat
        self._client = chat.client
        self._display: PlainDisplay = chat.display or PlainDisplay(chat.console)
        self._left: Stream | None = None
        self._interrupted = False
        """Ctrl-C was pressed: once more leaves."""

    def pipe(self, lines: Iterable[str]) -> None:
        """Say each line, or do what it commands; the first error ends it."""
        with suppress(Quit):
            for line in lines:
                self._take(line.rstrip("\n"))

    def talk(self) -> None:
        self._greet()
        self._settle_first()
        while True:
            try:
                line = input(self._prompt())
            except EOFError:
                self._console.print()
                return
            except KeyboardInterrupt:
                self._console.print()
                if self._interrupted:
                    return
                self._interrupted = True
                self._aside("Once more, or Ctrl-D, leaves.")
                continue
            self._interrupted = False
            try:
                self._take(line)
            except Quit:
                return
            except MemserverError as error:
                self._console.print(error_text(error))
            except KeyboardInterrupt:
                self._console.print()
                self._aside("Cancelled.")

    def _settle_first(self) -> None:
        """Ask for what has waited since another time."""
        try:
            self._settle()
        except Undecided:
            self._aside("The call waits on. Your first message asks again.")
        except MemserverError as error:
            self._console.print(error_text(error))

    @property
    def _console(self) -> Console:
        return self._chat.console

    def _take(self, line: str) -> None:
        text = line.strip()
        if not text:
            return
        if text.startswith("/") and not text.startswith("//"):
            commands.run(self._chat, text)
            return
        try:
            self._read_on()
            self._settle()
        except Undecided:
            self._aside(
                "The call waits on, and your message was not sent. The next one asks again."
            )
            return
        self._converse(self._client.messages.stream(self._chat.agent.id, text.removeprefix("/")))

    def _read_on(self) -> None:
        """Show what came of a message that was not waited for. Raises Undecided."""
        if self._left is not None:
            try:
                self._show(self._left.resumed())
            except MemserverError as error:
                self._console.print(error_text(error))
            self._left = None

    def _settle(self) -> None:
        """Settle a call that waits, since after it every message would wait. Raises Undecided."""
        call = waiting_call(self._chat)
        if call is not None:
            following = settle(self._chat, call)
            if following is not None:
                self._show(following, shown=call.position)

    def _converse(self, stream: Stream) -> None:
        try:
            self._show(stream)
        except Undecided:
            self._aside("The call waits on. Your next message asks again.")

    def _show(self, stream: Stream, *, shown: int | None = None) -> None:
        """Show a turn to its end, through all calls that wait; the call at position `shown` was shown already. Raises Undecided."""
        following: Stream | None = stream
        while following is not None:
            paused = self._follow(following, shown)
            if paused is None:
                return
            if isinstance(paused, TurnQueued):
                following = self._after(following)
                continue
            call = waiting_call(self._chat)
            if call is None:  # somebody else was quicker
                following = self._client.turns.events(
                    self._chat.agent.id, paused.turn, after=paused.position - 1
                )
            else:
                following = settle(self._chat, call)
            shown = paused.position

    def _after(self, queued: Stream) -> Stream:
        """A turn that was stored after a call which waits: once that is settled. Raises Undecided."""
        self._left = queued
        self._aside("Stored. It is answered after a call that waits.")
        self._settle()
        self._left = None
        return queued.resumed()

    def _follow(
        self, stream: Stream, shown: int | None = None
    ) -> ActionRequired | TurnQueued | None:
        """Show a turn until it ends or is cancelled; or it waits, for what is returned."""
        steps: int | None = None
        self._display.begin()
        try:
            with stream:
                for event in stream:
                    if isinstance(event, ActionRequired | TurnQueued):
                        return event
                    if not (isinstance(event, Thought | ToolCalled) and event.position == shown):
                        self._display.show(event)
                    if isinstance(event, TurnEnded):
                        steps = event.steps
        except KeyboardInterrupt:
            self._display.end()
            self._cancel(stream)
            return None
        finally:
            self._display.end()
        self._show_fullness(steps)
        return None

    def _cancel(self, stream: Stream) -> None:
        """Cancel the turn, as Ctrl-C says; twice leaves. Without a terminal once ends the command."""
        self._interrupted = True
        self._left = stream  # should it not be cancelled
        try:
            if stream.turn is None:
                done = "What comes of it is shown with the next message."
            else:
                self._client.turns.cancel(self._chat.agent.id, stream.turn)
                self._left, done = None, "Cancelled. Once more, or Ctrl-D, leaves."
        except KeyboardInterrupt as error:
            raise Quit from error
        except Conflict:
            done = "It has just ended. What came of it is shown with the next message."
        if self._chat.display is None:
            raise KeyboardInterrupt
        self._aside(done)

    def _show_fullness(self, steps: int | None) -> None:
        if self._chat.display is None:
            return
        try:
            self._console.print(fullness(self._client.agents.context(self._chat.agent.id), steps))
        except MemserverError as error:
            self._aside(f"How full the context is can't be said: {error.message}")
        self._console.print()

    def _greet(self) -> None:
        agent = self._chat.agent
        self._console.print(Text(agent.name, style="bold green"), end=" ")
        model = agent.model or "the server's model"
        self._aside(f"({model}) · {WELCOME}")
        _complete_commands()
        self._show_fullness(None)

    def _aside(self, text: str) -> None:
        self._console.print(Text(text, style="dim"))

    def _prompt(self) -> str:
        if self._console.color_system is None:
            return "you > "
        return "\x01\x1b[1;36m\x02you >\x01\x1b[0m\x02 "


def _complete_commands() -> None:
    """Line editing with a history, and completion of commands, where Python has readline."""
    try:
        readline = importlib.import_module("readline")
    except ImportError:
        return
    words = [f"/{name} " for name in COMMANDS]

    def complete(start: str, state: int) -> str | None:
        found = [word for word in words if word.startswith(start)] if start else []
        return found[state] if state < len(found) else None

    readline.set_completer_delims(" ")
    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")
