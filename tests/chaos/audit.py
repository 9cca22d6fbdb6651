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


def audit(world: World, messages: Sequence[Said]) -> Audit:
    """Compare what was said with what is stored."""
    with world.superuser() as connection:
        stored = connection.execute(
            "SELECT agent_id::text, position, role, content FROM messages ORDER BY agent_id, position"
        ).fetchall()
        turns = connection.execute(
            "SELECT agent_id::text, turn, state, attempts, error::text FROM turns ORDER BY agent_id, turn"
        ).fetchall()
    asked = Counter(content for _, _, role, content in stored if role == "user")
    echoed = Counter(content for _, _, role, content in stored if role == "assistant" and content)
    lost, twice, stuck = [], [], []
    for said in messages:
        wanted = f"echo: {said.text}"
        if said.answer is None:
            stuck.append(f"{said.text}: no answer after {said.tries} tries; {said.refusal}")
        elif said.answer != wanted:
            lost.append(f"{said.text}: answered {said.answer!r}")
        if said.answer is not None and not (asked[said.text] and echoed[wanted]):
            lost.append(f"{said.text}: stored {asked[said.text]}, answered {echoed[wanted]} times")
        times = max(asked[said.text], echoed[wanted], world.webhook.delivered[said.text])
        if times > 1:
            twice.append(f"{said.text}: {times} times")
    stuck += [
        f"turn {turn} of {agent} is {state} after {attempts} attempts: {error}"
        for agent, turn, state, attempts, error in turns
        if state != "done"
    ]
    lost += _gaps(stored, turns)
    return Audit(tuple(lost), tuple(twice), tuple(stuck))


def _gaps(stored: Sequence[tuple[object, ...]], turns: Sequence[tuple[object, ...]]) -> list[str]:
    """Where numbers are missing: of an agent's turns, and of a turn's messages."""
    of_turn: dict[tuple[object, int], list[int]] = {}
    for agent, position, *_ in stored:
        turn, place = divmod(int(str(position)), PLACES_PER_TURN)
        of_turn.setdefault((agent, turn), []).append(place)
    found = [
        f"turn {turn} of {agent} has the places {places}"
        for (agent, turn), places in of_turn.items()
        if places != list(range(len(places)))
    ]
    numbers: dict[object, list[int]] = {}
    for agent, turn, *_ in turns:
        numbers.setdefault(agent, []).append(int(str(turn)))
    return found + [
        f"{agent} has gaps in its turns"
        for agent, given in numbers.items()
        if given != list(range(1, len(given) + 1))
    ]
