"""A turn under the lens: each step's prompt as it was sent, what it cost, and what the model replied."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi.responses import Response

from memserver.client.models import Agent, Message, TurnStep, TurnSteps
from memserver.console.charts import Segment, stacked
from memserver.console.conversation import find_turn
from memserver.console.rendering import as_json
from memserver.console.routing import PageRouter
from memserver.console.visit import VisitDep

router = PageRouter()
PLACES_PER_TURN = 1000
"""A message's position is its turn's number times this, and its place in the turn."""
PICTURE = "data:image/"


@dataclass(frozen=True, slots=True)
class Shown:
    """One message of a prompt: its text, and what else it has, such as the call that it made."""

    role: str
    preview: str
    text: str
    rest: str


@dataclass(frozen=True, slots=True)
class Exchange:
    """What a step sent; `rest` is the request without messages and tools."""

    messages: Sequence[Shown]
    tools: Sequence[tuple[str, str]]
    rest: str


@dataclass(frozen=True, slots=True)
class ShownStep:
    step: TurnStep
    parts: Sequence[Segment]
    times: Sequence[Segment]
    seconds: float
    message: Message | None
    sent: Exchange | None
    reply: str


@router.get("/agents/{agent}/turns/{turn}")
async def show_turn(visit: VisitDep, agent: str, turn: int) -> Response:
    api = visit.api
    found = await api.agents.get(agent)
    status = await api.turns.get(agent, turn)
    looked = await api.turns.steps(agent, turn)
    first = turn * PLACES_PER_TURN
    page = await api.messages.list(agent, after=max(0, first - 1), limit=100, order="asc")
    messages = [each for each in page.items if each.position // PLACES_PER_TURN == turn]
    by_position = {each.position: each for each in messages}
    widest = max((sum(step.parts.values()) for step in looked.steps), default=0)
    steps = [_shown(step, by_position.get(step.position or -1), widest) for step in looked.steps]
    return visit.page(
        "lens.html",
        section="agents",
        agent=found,
        turn=status,
        looked=looked,
        began=by_position.get(first),
        steps=steps,
        spent=stacked(_spent(looked)),
        has_next=await find_turn(visit, agent, turn + 1) is not None,
    )


@router.post("/agents/{agent}/trace")
async def set_tracing(visit: VisitDep, agent: str) -> Response:
    """Store the agent's prompts from now on, or no more."""
    form = await visit.form()
    found: Agent = await visit.api.agents.get(agent)
    options = {**found.options.model_dump(exclude_unset=True), "trace": form.get("trace") == "on"}
    await visit.api.agents.update(found.id, options=options)
    return visit.go("agents", agent, "turns", str(form.get("turn") or 1))


def _shown(step: TurnStep, message: Message | None, widest: int) -> ShownStep:
    times: dict[str, float] = step.seconds.model_dump()
    return ShownStep(
        step,
        stacked(step.parts, widest),
        stacked(times),
        sum(times.values()),
        message,
        None if step.request is None else read_request(step.request),
        as_json(_filled(step.reply)),
    )


def _spent(looked: TurnSteps) -> Mapping[str, float]:
    spent = {"waited": looked.waited or 0.0}
    for step in looked.steps:
        for name, value in step.seconds.model_dump().items():
            spent[name] = spent.get(name, 0.0) + value
    return spent


def read_request(request: object) -> Exchange:
    """A request's body for people to read, whatever form its endpoint wants."""
    body: Mapping[str, Any] = request if isinstance(request, Mapping) else {"body": request}
    rest = {name: value for name, value in body.items() if name not in {"messages", "tools"}}
    return Exchange(
        [_message(each) for each in body.get("messages") or ()],
        [_tool(each) for each in body.get("tools") or ()],
        as_json(rest) if rest else "",
    )


def _filled(value: object) -> object:
    """A value without what is empty in it."""
    if isinstance(value, Mapping):
        kept = {name: _filled(each) for name, each in value.items()}
        return {name: each for name, each in kept.items() if each not in (None, "", {}, [])}
    return [_filled(each) for each in value] if isinstance(value, list) else value


def _message(message: Mapping[str, Any]) -> Shown:
    content = message.get("content", message.get("text", ""))
    if isinstance(content, list):
        content = "\n".join(_part(part) for part in content)
    hidden = {"role", "content", "text"}
    rest = {name: value for name, value in message.items() if name not in hidden and value}
    shown = as_json(rest) if rest else ""
    preview = str(content or "") or _called(message) or shown
    return Shown(str(message.get("role", "")), preview, str(content or ""), shown)


def _called(message: Mapping[str, Any]) -> str:
    """The calls that a message made, in a line."""
    calls = [each.get("function") or {} for each in message.get("tool_calls") or ()]
    return ", ".join(f"{call.get('name')} {call.get('arguments')}" for call in calls)


def _part(part: Mapping[str, Any]) -> str:
    url = str((part.get("image_url") or {}).get("url", ""))
    if url.startswith(PICTURE):
        return f"[a picture, {len(url):,} characters as sent]"
    return str(part.get("text", as_json(part)))


def _tool(tool: Mapping[str, Any]) -> tuple[str, str]:
    described = tool.get("function") or tool
    return str(described.get("name", "")), as_json(tool)
