"""Calls that wait: the person at the terminal is asked, and the server gets the answer."""

import json

from rich.text import Text

from memserver.cli.chat.commands import Place
from memserver.cli.chat.screen import PLUMBING
from memserver.cli.chat.wrapping import harmless
from memserver.client.blocking import Stream
from memserver.client.models import WaitingCall
from memserver.errors import InvalidInput

_MEANINGS = {"y": True, "yes": True, "n": False, "no": False}


class Undecided(Exception):
    """The person doesn't say now; the call waits on."""


def waiting_call(place: Place) -> WaitingCall | None:
    """The call with which the agent waits, if it does."""
    return next(iter(place.client.calls.list(place.agent.id).items), None)


def settle(place: Place, call: WaitingCall) -> Stream | None:
    """Have a call approved or refused, or its turn cancelled where nobody here can run it.

    Returns:
        What follows in the turn; None: it was cancelled.

    Raises:
        Undecided: the call waits on.
        InvalidInput: there is no terminal to ask at, or the turn was cancelled and there is none to say so at.
    """
    if call.waits_for == "client":
        _cancel(place, call)
        return None
    if place.display is None:
        raise InvalidInput(
            f"The call of {call.name} waits for an approval.",
            hint=f"memserver chat {place.agent.name} in a terminal asks for it.",
        )
    shown = {key: value for key, value in call.arguments.items() if key not in PLUMBING}
    place.console.print(Text(f"{call.name} waits for your approval:", style="bold yellow"))
    place.console.print(Text(harmless(json.dumps(shown, ensure_ascii=False, indent=2))))
    approve = _decided(place)
    reason = None if approve else _read(place, "Why not? ").strip()
    return place.client.calls.stream_decision(
        call.agent_id, call.call_id, approve=approve, reason=reason
    )


def _cancel(place: Place, call: WaitingCall) -> None:
    place.client.turns.cancel(call.agent_id, call.turn)
    message = f"{call.name} is run by the program that asks, and can't be run here."
    hint = "The turn was cancelled."
    if place.display is None:
        raise InvalidInput(message, hint=hint)
    place.console.print(Text(f"{message}\n{hint}", style="yellow"))


def _decided(place: Place) -> bool:
    while (said := _read(place, "Approve? [y/n] ").strip().lower()) not in _MEANINGS:
        pass
    return _MEANINGS[said]


def _read(place: Place, question: str) -> str:
    try:
        return input(question)
    except (EOFError, KeyboardInterrupt) as error:
        place.console.print()
        raise Undecided from error
