"""Calls that wait: the person at the terminal is asked, and the server gets the answer."""

import json

from rich.text import Text

from memserver.cli.chat.commands import ChatContext
from memserver.cli.chat.screen import PLUMBING
from memserver.cli.chat.wrapping import harmless
from memserver.client.blocking import Stream
from memserver.client.models import WaitingCall
from memserver.errors import InvalidInput

_MEANINGS = {"y": True, "yes": True, "n": False, "no": False}


class Undecided(Exception):
    """The person doesn't say now; the call waits on."""


def waiting_call(chat: ChatContext) -> WaitingCall | None:
    return next(iter(chat.client.calls.list(chat.agent.id).items), None)


def settle(chat: ChatContext, call: WaitingCall) -> Stream | None:
    """Have a call approved or refused, or its turn cancelled where nobody here can run it.

    Returns:
        What follows in the turn; None: it was cancelled.

    Raises:
        Undecided: the call waits on.
        InvalidInput: there is no terminal to ask at, or the turn was cancelled and there is none to say so at.
    """
    if call.waits_for == "client":
        _cancel(chat, call)
        return None
    if chat.display is None:
        raise InvalidInput(
            f"The call of {call.name} waits for an approval.",
            hint=f"memserver chat {chat.agent.name} in a terminal asks for it.",
        )
    shown = {key: value for key, value in call.arguments.items() if key not in PLUMBING}
    chat.console.print(Text(f"{call.name} waits for your approval:", style="bold yellow"))
    chat.console.print(Text(harmless(json.dumps(shown, ensure_ascii=False, indent=2))))
    approve = _decide(chat)
    reason = None if approve else _read(chat, "Why not? ").strip()
    return chat.client.calls.stream_decision(
        call.agent_id, call.call_id, approve=approve, reason=reason
    )


def _cancel(chat: ChatContext, call: WaitingCall) -> None:
    chat.client.turns.cancel(call.agent_id, call.turn)
    message = f"{call.name} is run by the program that asks, and can't be run here."
    hint = "The turn was cancelled."
    if chat.display is None:
        raise InvalidInput(message, hint=hint)
    chat.console.print(Text(f"{message}\n{hint}", style="yellow"))


def _decide(chat: ChatContext) -> bool:
    while (said := _read(chat, "Approve? [y/n] ").strip().lower()) not in _MEANINGS:
        pass
    return _MEANINGS[said]


def _read(chat: ChatContext, question: str) -> str:
    try:
        return input(question)
    except (EOFError, KeyboardInterrupt) as error:
        chat.console.print()
        raise Undecided from error
