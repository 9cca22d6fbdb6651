"""What the cards in an endpoint's list of models say: a card is one entry of GET /v1/models."""

import re
from collections.abc import Callable, Iterator, Sequence

from memserver.messages import JsonObject

_WINDOW_KEYS = (
    "max_model_len",  # vLLM, SGLang
    "context_length",  # OpenRouter, Together, Fireworks
    "context_window",  # Groq
    "max_context_length",  # Mistral, LM Studio
    "max_context_tokens",
    "loaded_context_length",  # LM Studio: what it was loaded with, at most max_context_length
    "inputTokenLimit",  # Gemini
)
_PARTS = (("meta", "n_ctx"), ("top_provider", "context_length"))
"""llama.cpp: what it runs with (n_ctx_train is what the model was trained with); OpenRouter: of the provider it takes."""
_VARIANT = re.compile(r":(?:free|nitro|floor|online|exacto|extended|thinking|beta)$")
"""OpenRouter's, of which not each is listed."""


def find_card(name: str, cards: Sequence[JsonObject]) -> JsonObject | None:
    """The card of a model, also where the list has its name in another form.

    Gemini lists `models/NAME`, Ollama `NAME:latest`, OpenRouter a variant's model alone; a card may have `aliases`.
    """
    forms: tuple[Callable[[str], str], ...] = (
        str,
        _plain,
        lambda text: _VARIANT.sub("", _plain(text)),
    )
    for form in forms:
        for card in cards:
            # Only the asked name's variant is left out: a card of one is not the model's own.
            listed = str if form is str else _plain
            if form(name) in map(listed, _names(card)):
                return card
    return None


def parent_of(card: JsonObject) -> str | None:
    """The base model that a card names, which makes it an adapter's."""
    parent = card.get("parent")
    return parent if isinstance(parent, str) and parent and parent != card.get("id") else None


def base_of(name: str, cards: Sequence[JsonObject]) -> str | None:
    """The model under an adapter, or the model itself; None where it isn't listed."""
    card = find_card(name, cards)
    return None if card is None else parent_of(card) or str(card["id"])


def window_of(name: str, cards: Sequence[JsonObject]) -> int | None:
    """The window on the model's card, or on its parent's: an adapter's card has none of its own.

    Of several the smallest holds. A list of one model is of that one, whatever it is asked by: llama.cpp lists its file.
    """
    card = find_card(name, cards) or (cards[0] if len(cards) == 1 else {})
    shown = (card, find_card(parent_of(card) or "", cards) or {})
    return next((min(windows) for each in shown if (windows := list(_windows(each)))), None)


def _windows(card: JsonObject) -> Iterator[int]:
    found = [card.get(key) for key in _WINDOW_KEYS]
    for part, key in _PARTS:
        inner = card.get(part)
        found.append(inner.get(key) if isinstance(inner, dict) else None)
    return (window for window in found if type(window) is int and window > 0)


def _names(card: JsonObject) -> Iterator[str]:
    aliases = card.get("aliases")
    names = [card.get("id"), *(aliases if isinstance(aliases, list) else ())]
    return (name for name in names if isinstance(name, str))


def _plain(name: str) -> str:
    return name.lower().removeprefix("models/").removesuffix(":latest")
