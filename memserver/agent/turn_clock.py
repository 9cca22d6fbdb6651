"""The time in a turn: the server's; or, for an agent that lives in its messages' time, that of what it was told last."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from memserver.agent.context import AgentView
from memserver.agent.dependencies import Clock
from memserver.agent.options import AgentClock
from memserver.messages import Message


class TurnClock:
    """The clock of one turn."""

    def __init__(self, kind: AgentClock, clock: Clock, queue: Sequence[Message]) -> None:
        told = (each.created_at for each in reversed(queue) if each.role == "user")
        self._told = next(told, None) if kind == "messages" else None
        self._clock = clock

    def now(self) -> datetime:
        """The time of what the agent does."""
        return self._told or self._clock()

    def shown(self, view: AgentView) -> AgentView:
        """The agent as the prompt shows it: one in another time sees no date of ours."""
        if self._told is None:
            return view
        state = replace(view.snapshot.state, stats_edited_at=self._told)
        return replace(view, snapshot=replace(view.snapshot, state=state))
