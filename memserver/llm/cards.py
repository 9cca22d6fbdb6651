"""What the cards in an endpoint's list of models say: a card is one entry of GET /v1/models."""

from collections.abc import Sequence

from memserver.messages import JsonObject

_WINDOW_KEYS = ("max_model_len", "context_length", "context_window")


def parent_of(card: JsonObject) -> str | None:
    """The base model that a card names, which makes it an adapter's."""
    parent = card.get("parent")
    return parent if isinstance(parent, str) and parent and parent != card.get("id") else None


def base_of(name: str, cards: Sequence[JsonObject]) -> str | None:
    """The model under an adapter, or the model itself; None where it isn't listed."""
    by_name = {card.get("id"): card for card in cards}
    if name not in by_name:
        return None
    return parent_of(by_name[name]) or name


def window_of(name: str, cards: Sequence[JsonObject]) -> int | None:
    """The window on the model's card, or on its parent's: an adapter's card has none of its own."""
    by_name = {card.get("id"): card for card in cards}
    card = by_name.get(name, {})
    for shown in (card, by_name.get(parent_of(card), {})):
        for key in _WINDOW_KEYS:
            window = shown.get(key)
            if isinstance(window, int) and window > 0:
                return window
    return None
