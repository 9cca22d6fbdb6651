"""What is known of a turn while it runs. The step loop, a call's life, memory pressure and what is written share it."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from memserver.agent.context import AgentView, PromptParts, as_sent, build_prompt
from memserver.agent.counting import Counting
from memserver.agent.deadline import Deadline
from memserver.agent.dependencies import TurnDependencies
from memserver.agent.endings import DIED
from memserver.agent.events import Event
from memserver.agent.live_text import TextDelta, attempt_name
from memserver.agent.rendering import is_sent
from memserver.agent.turn_tools import TurnTools
from memserver.errors import LeaseLost
from memserver.llm.base import TextSink
from memserver.memory.queue import Budget
from memserver.memory.results import READ_TOOL
from memserver.messages import CallState, Entry, Role, TokenUsage
from memserver.metering import StepMeter
from memserver.storage import recall
from memserver.storage.inbox import PLACES_PER_TURN
from memserver.storage.leases import ClaimedTurn
from memserver.storage.snapshots import read_snapshot
from memserver.tools.turn_request import TurnRequest

MOST_ALERT_STEPS = 5
"""Steps that one alert leads to."""
MOST_TURN_STEPS = PLACES_PER_TURN * 4 // 5
"""Of one turn, however often a client continues it: an alert takes a place of the turn, too."""


class TurnState:
    """The agent as it was last read, its queue, and how far its turn has come.

    Attributes:
        view: the agent as its prompts show it.
        queue: what prompts show of the history; what is answered stays in it though it was evicted.
        budget: of the last prompt.
        warned: the alert of memory pressure needs not come again before the next eviction.
        alert: it was decided on, and is committed with the step that is being ended.
        pending_stop: why the turn ends once the alert's steps are over; None where none are made.
    """

    def __init__(
        self, deps: TurnDependencies, claimed: ClaimedTurn, queue: list[Entry], deadline: Deadline
    ) -> None:
        snapshot, turn = claimed.snapshot, claimed.turn
        self.deps, self.lease, self.turn, self.deadline = deps, claimed.lease, turn, deadline
        self.steps, self.usage, self.pending_stop = turn.steps, turn.usage, turn.stop_reason
        self.warned = snapshot.state.pressure_warned
        self.alert: Entry | None = None
        self.budget: Budget | None = None
        self.first = turn.first_position
        self.request = TurnRequest.of(turn.request)
        self.tools = TurnTools(deps.tools, snapshot.grants, self.request)
        self.view = AgentView.of(snapshot, self.tools, deps.limits)
        self.meter, self.traces = StepMeter(), deps.limits.traces(self.view.options)
        self.model_name = snapshot.agent.model
        self.model = deps.models.get(self.model_name, claimed.lease.tenant)
        self.counting = Counting(self.model, self.view.form, snapshot.state.token_scale)
        said_at = (each.created_at for each in reversed(queue) if each.role == "user")
        lives_in_messages = self.view.options.clock == "messages"
        self._said_at = next(said_at, None) if lives_in_messages else None
        self.queue = as_sent(queue, self.model)
        ours = [message for message in queue if message.position >= self.first]
        self.replied = any(map(is_sent, ours))
        began = ours[0] if ours else None
        self.of_event = (
            began is not None
            and began.position == self.first
            and began.role == "system"
            and turn.request is None
        )
        """It began with something that happened; nobody waits for an answer."""
        self._expires_at = began.expires_at if began and began.position == self.first else None
        self._alert_at = turn.steps

    @property
    def queue_start(self) -> int:
        """Position from which on the history is in the queue."""
        return self.view.snapshot.state.queue_start

    @property
    def evictable(self) -> list[Entry]:
        """The queue, without the message that is answered where it stays in sight though it was evicted."""
        return [each for each in self.queue if each.position >= self.queue_start]

    @property
    def next_position(self) -> int:
        newest = self.queue[-1].position if self.queue else self.first
        return max(newest, self.first) + 1

    @property
    def is_saving(self) -> bool:
        """Whether the turn has done what it was for, and the alert's steps follow."""
        return self.pending_stop is not None

    @property
    def is_last_step(self) -> bool:
        """Whether the step that comes, or is being made, is the last one that may be made."""
        most = self.view.options.max_steps or self.deps.limits.max_steps
        saved_enough = self.is_saving and self.steps + 1 - self._alert_at >= MOST_ALERT_STEPS
        made = self.steps - self.request.since.get("steps", 0)
        return made + 1 >= most or saved_enough or self.steps + 1 >= MOST_TURN_STEPS

    @property
    def must_still_reply(self) -> bool:
        """Whether somebody waits for an answer that the agent may not leave out."""
        return self.view.options.must_reply and not (self.replied or self.of_event)

    @property
    def can_read_on(self) -> bool:
        """Whether the agent can read what is shown shortened."""
        return self.tools.get(READ_TOOL) is not None

    @property
    def was_killed(self) -> bool:
        """Whether a process ended in an earlier attempt: what is given back was no attempt."""
        return self.turn.attempts > 1

    @property
    def has_died(self) -> bool:
        return any(
            each.call is not None and each.call.result == DIED
            for each in self.queue
            if each.position >= self.first
        )

    def now(self) -> datetime:
        """The time: for an agent that lives in its messages' time, that of the last one."""
        return self._said_at or self.deps.clock()

    def entry(self, position: int, role: Role, text: str, **more: Any) -> Entry:  # noqa: ANN401 - of Entry
        """What the turn adds to the history: it expires with what the turn answers; still to be counted."""
        return Entry(position, role, text, self.now(), 0, expires_at=self._expires_at, **more)

    def begin_saving(self, stop: str, alert: Entry) -> None:
        """The alert's steps follow the one that is being ended; the turn will end with this reason."""
        self.alert, self.pending_stop, self._alert_at, self.warned = (
            alert,
            stop,
            self.steps + 1,
            True,
        )

    def add_usage(self, usage: TokenUsage) -> None:
        self.usage += usage
        self.meter.usage += usage

    def publish(self, event: Event) -> None:
        self.deps.events.publish(self.turn.agent_id, self.turn.turn, event)

    def text_sink(self) -> TextSink:
        """Takes the text of the next step's message while it is generated, and publishes it."""
        step, position, attempt, at = self.steps + 1, self.next_position, attempt_name(), 0

        def take(text: str) -> None:
            nonlocal at
            self.publish(TextDelta(step, position, attempt, at, text))
            at += len(text)

        return take

    async def close(self, message: Entry, state: CallState, result: str) -> Entry:
        assert message.call is not None
        record = replace(message.call, state=state, result=result, finished_at=self.now())
        return await self.counting.entry(replace(message, call=record))

    async def build_prompt(self) -> PromptParts:
        async with self.deadline.cutting():
            view = self.view if self._said_at is None else self.view.edited_at(self._said_at)
            prompt = await build_prompt(view, self.model, self.deps, self.counting.scale)
        if prompt.tools is not self.view.tools:
            self.view = replace(self.view, tools=prompt.tools)
        return prompt

    async def refresh(self) -> None:
        """Read again what a tool, the API, another agent or an eviction may have changed."""
        async with self.deps.database.tenant(self.lease.tenant) as tx:
            found = await read_snapshot(tx, self.turn.agent_id)
            if found is None:
                raise LeaseLost("The agent was deleted.")
            snapshot, _ = found
            start = snapshot.state.queue_start
            if snapshot.state.history_version != self.view.snapshot.state.history_version:
                before = await recall.queue(tx, self.turn.agent_id, start, self.first)
                ours = [each for each in self.queue if each.position >= self.first]
                self.queue = [*as_sent(before, self.model), *ours]
        if start != self.queue_start:
            self.warned = snapshot.state.pressure_warned
            self.queue = [  # what is asked stays in sight while it is answered
                each for each in self.queue if each.position >= start or each.position == self.first
            ]
        self.tools.renew(snapshot.grants)
        self.view = self.view.renewed(snapshot, self.tools)
