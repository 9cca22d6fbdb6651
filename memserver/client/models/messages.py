"""Messages, turns and recall storage."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from memserver.client.models.base import ErrorDetails, Record

WaitsFor = Literal["approval", "client"]
"""A person's approval, or the result from the caller who runs the tool."""


class ToolCall(Record):
    """A call that the agent made, and what came of it.

    Attributes:
        waits_for: whose answer it waits or has waited for, if any.
    """

    id: str
    name: str
    arguments: dict[str, Any]
    state: Literal["pending", "running", "waiting", "done", "failed", "interrupted"]
    waits_for: WaitsFor | None = None
    result: str | None
    finished_at: datetime | None


class Message(Record):
    """One entry of the history; `position` identifies it within its agent and orders the history."""

    position: int
    role: Literal["user", "assistant", "system"]
    text: str
    thought: str
    tool_call: ToolCall | None
    tokens: int
    created_at: datetime


class Usage(Record):
    """Tokens of a turn's model calls, as the endpoint counted them."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


class WaitingCall(Record):
    """A call that waits for somebody's answer; at `expires_at` its turn goes on without one."""

    agent_id: UUID
    turn: int
    position: int
    call_id: str
    name: str
    arguments: dict[str, Any]
    waits_for: WaitsFor
    created_at: datetime
    expires_at: datetime


class Answer(Record):
    """What came of a message: `text` is all that the agent said, `messages` every step behind it.

    Its `stop_reason` is `requires_action` where the last call waits; `calls` gives the answer to it. It is
    `queued` where `behind`, a call of an earlier turn, waits: the message is stored and answered behind that.
    """

    turn: int
    text: str
    stop_reason: str
    steps: int
    usage: Usage
    messages: list[Message]
    behind: WaitingCall | None = None

    @property
    def waiting(self) -> ToolCall | None:
        """The call with which the turn waits for an approval or a result, if it does."""
        last = self.messages[-1].tool_call if self.messages else None
        return last if last is not None and self.stop_reason == "requires_action" else None


class Turn(Record):
    """A message, or an import, and what became of it; `behind`: the earlier turn's call for which it waits."""

    turn: int
    kind: Literal["message", "import"]
    state: Literal["waiting", "running", "requires_action", "done", "failed"]
    steps: int
    stop_reason: str | None
    error: ErrorDetails | None
    usage: Usage
    created_at: datetime
    finished_at: datetime | None
    behind: WaitingCall | None = None


class FoundMessage(Message):
    """A message that was found.

    Attributes:
        found_by: exact: it holds the very text; words: some of its words, in any form; meaning.
        score: cosine similarity, if it was found by meaning.
        label: what the agent calls it.
        excerpt: what matched, between `**`, with its surroundings.
    """

    found_by: list[Literal["exact", "words", "meaning"]]
    score: float | None = None
    label: str
    excerpt: str


class Coverage(Record):
    """How much of an agent's history can be found by meaning.

    Attributes:
        embedded: messages that have been embedded.
        messages: that there are.
        complete: whether all of turns that have ended are embedded.
    """

    embedded: int
    messages: int
    complete: bool


class RecallResults(Record):
    """One page of a recall search. Behind a cursor nothing is counted: total, page and pages are None.

    Attributes:
        total: how many are found: all that hold the very text, and the best by words and meaning.
        total_is_exact: False: there are more than `total`, and than `pages`.
        next: the cursor of what follows, for `after`; None: nothing does.
        coverage: where meaning was looked for.
    """

    items: list[FoundMessage]
    total: int | None = None
    total_is_exact: bool = True
    page: int | None = None
    pages: int | None = None
    next: str | None = None
    coverage: Coverage | None = None
