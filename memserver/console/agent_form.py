"""The form of an agent: its fields with what they mean, read back into what the API takes."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import FormData

from memserver.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Option:
    """One of an agent's own settings; left empty, the server's counts.

    Attributes:
        choices: the values that it can have, with what each means; none: it is typed.
        kind: int, float, bool or str.
    """

    name: str
    label: str
    meaning: str
    kind: str = "str"
    choices: tuple[tuple[str, str], ...] = ()


READERS: dict[str, Callable[[str], object]] = {"int": int, "float": float, "bool": json.loads}
_YES_NO = (("true", "Yes"), ("false", "No"))
OPTIONS = (
    Option(
        "reply_mode",
        "How the model is used",
        "Plain chat is for models that call no tools: they remember by summaries alone.",
        choices=(("tools", "It acts by calls of tools"), ("chat", "Plain chat")),
    ),
    Option(
        "context_window",
        "Context window",
        "Tokens of prompt and output; never more than the model has.",
        "int",
    ),
    Option(
        "max_output_tokens", "Output of a step", "Tokens kept free for one step's output.", "int"
    ),
    Option("max_steps", "Steps in a turn", "How often the model is asked in one turn.", "int"),
    Option(
        "must_reply",
        "Every message is answered",
        "Off, as in the MemGPT paper: a step without a heartbeat ends the turn, answered or not.",
        "bool",
        _YES_NO,
    ),
    Option(
        "prompt_order",
        "Place of the working context",
        "After the queue, an edit leaves the cached prompt before it as it is.",
        choices=(
            ("working_context_first", "Before the queue"),
            ("working_context_last", "After the queue"),
        ),
    ),
    Option(
        "history",
        "Its own messages in the prompt",
        "Texts take half the room of calls.",
        choices=(("calls", "As calls"), ("compact", "As texts")),
    ),
    Option(
        "auto_recall",
        "Automatic recall",
        "Before each message is answered the history is searched for it.",
        "bool",
        _YES_NO,
    ),
    Option(
        "auto_recall_floor",
        "Similarity for automatic recall",
        "Cosine similarity of a message, 0 to 1, from which on the search is shown.",
        "float",
    ),
    Option(
        "pressure_alert",
        "Alert when memory is short",
        "At 70 % of the window it gets steps to save what it will need.",
        "bool",
        _YES_NO,
    ),
    Option(
        "trace",
        "Keep prompts and replies",
        "As they are, for a while, to look at them step by step.",
        "bool",
        _YES_NO,
    ),
    Option(
        "clock",
        "What it takes for the time",
        "The times of messages are for histories that are replayed.",
        choices=(("server", "The server's clock"), ("messages", "The times of its messages")),
    ),
    Option("timezone", "Time zone", "Of dates without a zone, such as Europe/Berlin."),
)


def read_agent(form: FormData) -> dict[str, Any]:
    """What the API takes, from what was typed. Raises InvalidInput."""
    return {
        "model": _text(form, "model") or None,
        "system_prompt": _text(form, "system_prompt") or None,
        "language": _text(form, "language") or "auto",
        "options": {
            option.name: _value(option, text)
            for option in OPTIONS
            if (text := _text(form, option.name))
        },
    }


def read_sections(form: FormData) -> list[dict[str, Any]] | None:
    """The sections of a new agent; None: those that every agent has."""
    names, texts = form.getlist("section_name"), form.getlist("section_text")
    descriptions = form.getlist("section_description")
    found = [
        {"name": str(name).strip(), "text": _lines(text), "description": str(about).strip()}
        for name, text, about in zip(names, texts, descriptions, strict=False)
        if str(name).strip()
    ]
    return found or None


def _text(form: FormData, name: str) -> str:
    return _lines(form.get(name, "")).strip()


def _lines(text: object) -> str:
    return str(text).replace("\r\n", "\n")


def _value(option: Option, text: str) -> object:
    if option.kind == "str":
        return text
    try:
        return READERS[option.kind](text)
    except ValueError as error:
        raise InvalidInput(f"{option.label}: {text[:50]!r} is no number.") from error
