"""What somebody answers to a call that waits, and what becomes of one that nobody will answer."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from memserver.errors import Conflict
from memserver.messages import Entry, JsonObject, WaitsFor
from memserver.storage import calls
from memserver.storage.calls import OpenCall
from memserver.storage.database import Database
from memserver.storage.inbox import TurnRow
from memserver.storage.rows import PageQuery
from memserver.text import clean

PATIENCE = timedelta(seconds=20)
"""How long another client's message waits for the result of a call that was made after it had come."""


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """What somebody answers to a call that waits.

    Attributes:
        granted: an approval: whether it was given; a result: whether the call succeeded.
        text: why an approval was refused, or the result.
    """

    to: WaitsFor
    granted: bool
    text: str = ""

    def stored(self) -> JsonObject:
        if self.to == "approval":
            return {"approved": self.granted, "reason": clean(self.text).strip()}
        return {"state": "done" if self.granted else "failed", "result": clean(self.text)}


def is_of_request(message: Entry, turn: TurnRow) -> bool:
    """Whether an entry is a call of a tool that a client's request has brought to this turn."""
    names = (turn.request or {}).get("names", ())
    return message.call is not None and message.call.call.name in names


async def supersede(
    database: Database, tenant: str, turn: TurnRow, results: Mapping[str, str], worker: str
) -> None:
    """End a turn that waits for a result of a client, as there is something newer to answer: `turn`.

    Of `results`, by the call's id, one that came all the same closes the call; the caller of `worker` follows the turn.
    """
    with suppress(Conflict):  # somebody has answered just now
        async with database.tenant(tenant) as tx:
            for call in await calls.list_waiting(tx, PageQuery(1), agent_id=turn.agent_id):
                if not call.of_request or call.turn >= turn.turn:
                    return
                call_id = call.record.call.id
                given: JsonObject = {"superseded": True}
                if call_id in results:
                    given |= CallAnswer("client", True, results[call_id]).stored()
                locked = await calls.lock(tx, turn.agent_id, call_id)
                await calls.answer(tx, locked, given, worker)


def has_waited_enough(call: OpenCall) -> bool:
    """Whether a message that was sent before the call was made waits for its client no longer."""
    return datetime.now(UTC) - call.created_at > PATIENCE
