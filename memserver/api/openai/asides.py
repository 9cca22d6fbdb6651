"""Requests that are not remembered: a front end's own, for a title, tags or follow-up questions, and those that say so.

The agent's model answers them from what the request itself holds. The agent's memory is neither read nor written,
and they don't wait in its queue.
"""

import re
from collections.abc import AsyncGenerator, Awaitable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

from memserver.agent.events import End, EndedTurn
from memserver.agent.options import Limits
from memserver.api.openai.addressing import Addressed, Headers
from memserver.errors import InvalidInput
from memserver.messages import PromptMessage, TokenUsage
from memserver.openai_http.fleet import pinned_to
from memserver.storage.agents import AgentRow
from memserver.storage.inbox import TurnRow
from memserver.wire.agents import AgentOptions
from memserver.wiring.services import Services

_OWN_REQUESTS = re.compile(
    r"""\s*(?:
    \#\#\#\s*Task:(?!\s*Respond\s+to\s+the\s+user\s+query)   # Open WebUI: titles, tags, follow-ups, queries
    | Your\s+task\s+is\s+to\s+reflect\s+the\s+speaker's\s+likely\s+facial\s+expression       # Open WebUI
    | (?:Please\s+generate|Provide)\s+a\s+concise,\s+5-word-or-less\s+title\s+for\s+the\s+conversation  # LibreChat
    | Analyze\s+this\s+conversation\s+and\s+provide:\s+1\.\s+The\s+detected\s+language         # LibreChat
    | Please\s+generate\s+a\s+four\s+to\s+five\s+word\s+title\s+summarizing\s+our\s+conversation  # NextChat
    | Based\s+on\s+the\s+chat\s+history,\s+give\s+this\s+conversation\s+a\s+name              # Chatbox
    )""",
    re.IGNORECASE | re.VERBOSE,
)
"""How the last message of such a request begins. Open WebUI's prompt with documents begins alike, but is a question."""


@dataclass(frozen=True, slots=True)
class Aside:
    """An answer that is not remembered."""

    text: str
    ended: EndedTurn


async def aside_pieces(coming: Awaitable[Aside]) -> AsyncGenerator[str | End]:
    aside = await coming
    yield aside.text
    yield aside.ended


def is_remembered(
    services: Services, addressed: Addressed, headers: Headers, prompt: Sequence[PromptMessage]
) -> bool:
    """Whether a request is the agent's: the model's name decides, then the header, then how the request looks."""
    for said in (addressed.remember, headers.remember):
        if said is not None:
            return said
    return not (services.front_ends.answers_asides and is_own_request(prompt))


def is_own_request(prompt: Sequence[PromptMessage]) -> bool:
    """Whether it looks like a request of a front end's own, which no person has written."""
    last = next((each.text for each in reversed(prompt) if each.role == "user"), "")
    return _OWN_REQUESTS.match(last) is not None


async def answer_aside(
    services: Services, agent: AgentRow, prompt: Sequence[PromptMessage], max_tokens: object = None
) -> Aside:
    """Let the agent's model answer `prompt`, all that the request says, in `max_tokens`, but no more than the agent's own.

    Raises:
        InvalidInput: the request says nothing.
        ModelError: as the model has it.
    """
    if not any(each.text.strip() for each in prompt):
        raise InvalidInput("messages: there is no text to answer.")
    most = _most_tokens(services.deps.limits, agent)
    wanted = max_tokens if isinstance(max_tokens, int) and max_tokens > 0 else most
    model = services.deps.models.get(agent.model, agent.tenant)
    with pinned_to(agent.id):
        written = await model.write(prompt, max_tokens=min(wanted, most))
    return Aside(written.text, EndedTurn(0, 1, "message_sent", written.usage, None))


def _most_tokens(limits: Limits, agent: AgentRow) -> int:
    options = AgentOptions.model_validate(agent.options)
    return options.max_output_tokens or limits.max_output_tokens


def no_turn() -> TurnRow:
    """What stands for the turn of an aside, which has none."""
    now = datetime.now(UTC)
    return TurnRow(
        agent_id=uuid4(),  # so that no other answer has its id
        turn=0,
        kind="message",
        state="done",
        steps=1,
        attempts=1,
        stop_reason="message_sent",
        error=None,
        usage=TokenUsage(),
        posted_by="",
        created_at=now,
        finished_at=now,
    )
