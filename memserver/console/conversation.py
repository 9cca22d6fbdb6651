"""An agent's page: the conversation with it, the newest part first, and what is said and deleted there."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID, uuid4

from fastapi.responses import HTMLResponse, Response
from starlette.responses import StreamingResponse

from memserver.client.models import Agent, Message, Page, Turn, WaitingCall
from memserver.console.routing import PageRouter
from memserver.console.side_panel import TABS, known_tab
from memserver.console.turn_stream import PLACES_PER_TURN, frames
from memserver.console.visit import Visit, VisitDep
from memserver.errors import Conflict, NotFound

router = PageRouter()

SHOWN = 40
"""Messages that a page has at first, and at each look further back."""
MOST_UNFINISHED = 20


@dataclass(frozen=True, slots=True)
class ShownTurn:
    """A turn as the page shows it: what the person said, or what happened, and all that followed.

    Attributes:
        messages: those of it that are there by now.
        running: whether more may come, so that the page follows it.
    """

    turn: int
    messages: Sequence[Message]
    running: bool = False


def by_turn(newest_first: Sequence[Message]) -> list[ShownTurn]:
    """Messages in the order in which they are read, each with those of its turn."""
    turns: dict[int, list[Message]] = {}
    for message in reversed(newest_first):
        turns.setdefault(message.position // PLACES_PER_TURN, []).append(message)
    return [ShownTurn(turn, messages) for turn, messages in turns.items()]


@router.get("/agents/{agent}")
async def show_agent(visit: VisitDep, agent: str, tab: str = "") -> Response:
    found = await visit.api.agents.get(agent)
    page = await visit.api.messages.list(found.id, limit=SHOWN)
    turns = by_turn(page.items)
    turns += await _unfinished(visit, found, turns)
    return visit.page(
        "agent.html",
        section="agents",
        agent=found,
        turns=turns,
        earlier=page.next,
        waiting=await _waiting(visit, found.id),
        tabs=TABS,
        tab=known_tab(tab),
        form_key=uuid4().hex,
    )


async def _unfinished(visit: Visit, agent: Agent, turns: list[ShownTurn]) -> list[ShownTurn]:
    """The turns that the history ends with or that are to come after it, while they have not ended."""
    newest = turns[-1].turn if turns else 0
    found: list[ShownTurn] = []
    for number in range(max(newest, 1), newest + MOST_UNFINISHED):
        turn = await find_turn(visit, agent.id, number)
        if turn is None:
            break
        if turn.state in {"waiting", "running"}:
            said = turns.pop().messages if number == newest and turns else []
            found.append(ShownTurn(number, said, running=True))
    return found


async def find_turn(visit: Visit, agent: UUID | str, number: int) -> Turn | None:
    try:
        return await visit.api.turns.get(agent, number)
    except NotFound:
        return None


async def _waiting(visit: Visit, agent: UUID) -> WaitingCall | None:
    return next(iter((await visit.api.calls.list(agent, limit=1)).items), None)


@router.get("/agents/{agent}/earlier")
async def show_earlier(visit: VisitDep, agent: str, before: int) -> Response:
    page: Page[Message, int] = await visit.api.messages.list(agent, after=before, limit=SHOWN)
    found = await visit.api.agents.get(agent)
    return visit.page(
        "earlier.html", agent=found, turns=by_turn(page.items), earlier=page.next, waiting=None
    )


@router.get("/agents/{agent}/newer")
async def show_newer(visit: VisitDep, agent: str, after: int) -> Response:
    """A turn that began elsewhere, of a timer, a program or another page; nothing while there is none."""
    if await find_turn(visit, agent, after + 1) is None:
        return Response(status_code=204)
    return visit.page(
        "turn.html",
        agent=await visit.api.agents.get(agent),
        turn=ShownTurn(after + 1, [], running=True),
        waiting=None,
    )


@router.post("/agents/{agent}/messages")
async def post_message(visit: VisitDep, agent: str) -> Response:
    """Store what was said; the page then follows the turn."""
    form = await visit.form()
    answer = await visit.send(
        "POST",
        f"/v1/agents/{agent}/messages",
        json={"text": str(form.get("text", "")), "stream": True},
        headers={"Idempotency-Key": str(form.get("form_key", "")) or uuid4().hex},
    )
    turn = int(answer.headers["memserver-turn"])
    await answer.aclose()
    return visit.page(
        "said.html",
        agent=await visit.api.agents.get(agent),
        turn=ShownTurn(turn, [], running=True),
        said=str(form.get("text", "")),
        waiting=None,
        form_key=uuid4().hex,
    )


@router.get("/agents/{agent}/turns/{turn}/stream")
async def stream_turn(visit: VisitDep, agent: UUID, turn: int) -> Response:
    """The turn as it goes, as parts of the page; a browser that lost it begins it again."""
    return StreamingResponse(
        frames(visit, agent, turn),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"},
    )


@router.post("/agents/{agent}/turns/{turn}/cancel")
async def cancel_turn(visit: VisitDep, agent: UUID, turn: int) -> Response:
    await visit.form()
    with suppress(Conflict):  # it has just ended by itself
        await visit.api.turns.cancel(agent, turn)
    return Response(status_code=204)


@router.post("/agents/{agent}/turns/{turn}/delete")
async def delete_turn(visit: VisitDep, agent: UUID, turn: int) -> Response:
    await visit.form()
    await visit.api.turns.delete(agent, turn)
    return HTMLResponse("")


@router.post("/agents/{agent}/calls/{call}/answer")
async def answer_call(visit: VisitDep, agent: UUID, call: str) -> Response:
    """Approve or deny a call that waits, or give its result; the page then follows what comes of it."""
    form = await visit.form()
    turn = int(str(form["turn"]))
    decision = str(form.get("decision", ""))
    if decision == "result":
        body: dict[str, object] = {"result": str(form.get("result", "")), "stream": True}
    else:
        reason = str(form.get("reason", "")).strip()
        body = {"approve": decision == "approve", "stream": True}
        body |= {"reason": reason} if reason and decision != "approve" else {}
    way = "result" if decision == "result" else "approval"
    path = visit.api_path("agents", agent, "calls", call, way)
    answer = await visit.send("POST", path, json=body, headers={"Idempotency-Key": uuid4().hex})
    await answer.aclose()
    return visit.page(
        "turn.html",
        agent=await visit.api.agents.get(agent),
        turn=ShownTurn(turn, [], running=True),
        waiting=None,
    )
