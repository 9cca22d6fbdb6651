"""What somebody answers to a call that waits, and what becomes of one that nobody will answer."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from memserver.errors import Conflict
from memserver.messages import Entry, JsonObject, WaitsFor
from memserver.storage import calls
from memserver.storage.database import Database
from memserver.storage.inbox import TurnRow
from memserver.storage.rows import PageQuery
from memserver.text import clean


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """What somebody answers to a call that waits.

    Attributes:
        to: what it waits for.
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
    database: Database, scope: tuple[str, UUID], results: Mapping[str, str], worker: str
) -> None:
    """End the agent's turn that waits for a result of a client who says something else by now.

    Args:
        database: has it.
        scope: the tenant and the agent.
        results: by the call's id; one that came all the same closes the call.
        worker: whose caller follows the turn.
    """
    tenant, agent_id = scope
    with suppress(Conflict):  # somebody has answered just now
        async with database.tenant(tenant) as tx:
            for call in await calls.list_waiting(tx, PageQuery(1), agent_id=agent_id):
                if not call.of_request:
                    return
                call_id = call.record.call.id
                given: JsonObject = {"superseded": True}
                if call_id in results:
                    given |= CallAnswer("client", True, results[call_id]).stored()
                locked = await calls.lock(tx, agent_id, call_id)
                await calls.answer(tx, locked, given, worker)
