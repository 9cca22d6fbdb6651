"""The list of an endpoint's models, in the shapes in which it comes."""

from memserver.messages import JsonObject


def cards_in(listed: object) -> list[JsonObject] | None:
    """A card for each model, its name under `id`; None where it is no such list.

    OpenAI has {"data": […]}, Together the list alone, Ollama and Gemini {"models": […]} with `name`.
    """
    if isinstance(listed, dict):
        found = (listed.get(key) for key in ("data", "models"))
        listed = next((each for each in found if isinstance(each, list)), None)
    if not isinstance(listed, list):
        return None
    cards = [card for each in listed if (card := _card(each)) is not None]
    return cards if cards or not listed else None


def _card(listed: object) -> JsonObject | None:
    card = {"id": listed} if isinstance(listed, str) else listed
    if not isinstance(card, dict):
        return None
    names = (card.get(key) for key in ("id", "name", "model"))
    name = next((each for each in names if isinstance(each, str) and each), None)
    return None if name is None else {**card, "id": name}
