"""What must be true in the end: every message stored once and answered once, in order, and nothing stuck."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from memserver.storage.inbox import PLACES_PER_TURN
from tests.chaos.load import Said
from tests.chaos.world import World


@dataclass(frozen=True)
class Audit:
    """What is wrong, a line for each."""

    lost: tuple[str, ...]
    twice: tuple[str, ...]
    stuck: tuple[str, ...]


@dataclass(frozen=True)
class Stored:
    """What the database and the webhook have.

    Attributes:
        messages: agent, position, role and content of each, in order.
        turns: agent, turn, state, attempts and error of each, in order.
        delivered: how often the webhook was called for each message.
    """

    messages: Sequence[tuple[str, int, str, str]]
    turns: Sequence[tuple[str, int, str, int, str | None]]
    delivered: Counter[str]


def read(world: World) -> Stored:
    """All that is stored."""
    with world.database.superuser() as connection:
        messages = connection.execute(
            "SELECT agent_id::text, position, role, content FROM messages ORDER BY agent_id, position"
        ).fetchall()
        turns = connection.execute(
            "SELECT agent_id::text, turn, state, attempts, error::text FROM turns ORDER BY agent_id, turn"
        ).fetchall()
    return Stored(messages, turns, world.webhook.delivered)


def audit(said: Sequence[Said], stored: Stored) -> Audit:
    """Compare what was said with what is stored."""
    asked = Counter(content for _, _, role, content in stored.messages if role == "user")
    echoed = Counter(content for _, _, role, content in stored.messages if role == "assistant")
    lost, twice, stuck = [], [], []
    for each in said:
        wanted = f"echo: {each.text}"
        if each.answer is None:
            stuck.append(f"{each.text}: no answer after {each.tries} tries; {each.refusal}")
        elif each.answer != wanted:
            lost.append(f"{each.text}: answered {each.answer!r}")
        elif not (asked[each.text] and echoed[wanted]):
            lost.append(f"{each.text}: stored {asked[each.text]}, answered {echoed[wanted]} times")
        times = max(asked[each.text], echoed[wanted], stored.delivered[each.text])
        if times > 1:
            twice.append(f"{each.text}: {times} times")
    stuck += [
        f"turn {turn} of {agent} is {state} after {attempts} attempts: {error}"
        for agent, turn, state, attempts, error in stored.turns
        if state != "done"
    ]
    return Audit(tuple(lost + _gaps(stored)), tuple(twice), tuple(stuck))


def _gaps(stored: Stored) -> list[str]:
    """Where numbers are missing: of an agent's turns, and of a turn's messages."""
    places: dict[tuple[str, int], list[int]] = {}
    for agent, position, *_ in stored.messages:
        turn, place = divmod(position, PLACES_PER_TURN)
        places.setdefault((agent, turn), []).append(place)
    turns: dict[str, list[int]] = {}
    for agent, turn, *_ in stored.turns:
        turns.setdefault(agent, []).append(turn)
    return [
        f"turn {turn} of {agent} has the places {given}"
        for (agent, turn), given in places.items()
        if given != list(range(len(given)))
    ] + [
        f"{agent} has gaps in its turns"
        for agent, given in turns.items()
        if given != list(range(1, len(given) + 1))
    ]
