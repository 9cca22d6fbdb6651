"""What a turn writes. Its events are published once what they report is committed."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any

from memserver.agent.compaction import compaction_job
from memserver.agent.endings import as_json
from memserver.agent.events import EndedTurn, PausedTurn, StepCommitted
from memserver.agent.turn_state import TurnState
from memserver.errors import MemserverError
from memserver.messages import Entry, JsonObject
from memserver.storage import jobs, turn_steps, turn_writes
from memserver.storage.database import Transaction
from memserver.storage.turn_writes import StepCommit


@dataclass(frozen=True, slots=True)
class Continue:
    """Another step follows."""


@dataclass(frozen=True, slots=True)
class Paused:
    """The turn is stored, and waits for somebody's answer; whether the lease was released."""

    released: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """The turn is over, why, and whether the lease was released, since nothing else waits."""

    stop: str
    released: bool


Outcome = Continue | Paused | Ended


class TurnWriter:
    def __init__(self, state: TurnState) -> None:
        self._state = state

    async def write(
        self, tx: Transaction, step: Entry, stop: str | None, *, stored: bool = False
    ) -> Continue | Ended:
        """Write the end of a step, and the alert that follows it, if any; `report` comes once it is committed.

        `tx` is where call and effect are, too; `stop`: why the turn ends with the step, if it does; `stored`: the step's entry
        was written before, when its call began or waited.
        """
        state = self._state
        added = [] if stored else [step]
        if stored:
            await turn_writes.close_call(tx, state.lease, step)
        if state.alert is not None:
            added.append(state.alert)
        change = self._change(added, state.steps + 1, stop)
        released = await self._write(tx, change, [*state.queue, step])
        return Continue() if stop is None else Ended(stop, released)

    def report(self, step: Entry, outcome: Continue | Ended) -> None:
        state = self._state
        alert, state.alert = state.alert, None
        state.steps += 1
        for message in (step, alert):
            if message is not None:
                state.queue.append(message)
                state.publish(StepCommitted((message,)))
        if isinstance(outcome, Ended):
            self._report_end(outcome.stop)

    async def commit(
        self, step: Entry, stop: str | None, *, stored: bool = False
    ) -> Continue | Ended:
        """Write and report the end of a step, in a transaction of its own."""
        async with self._transaction() as tx:
            outcome = await self.write(tx, step, stop, stored=stored)
        self.report(step, outcome)
        return outcome

    async def begin_call(self, running: Entry) -> None:
        """Write that a call runs whose effect is not ours; its end is `stored`."""
        async with self._transaction() as tx:
            change = self._change([running], self._state.steps + 1, None)
            await turn_writes.commit_step(tx, self._state.lease, change)

    async def close_call(self, closed: Entry) -> None:
        """Write a state and result of a call, which make no step."""
        async with self._transaction() as tx:
            await turn_writes.close_call(tx, self._state.lease, closed)

    async def add_unasked(self, found: Entry) -> None:
        """Write a call that the server has made by itself, which makes no step."""
        state = self._state
        async with self._transaction() as tx:
            change = self._change([found], state.steps, None)
            await turn_writes.commit_step(tx, state.lease, change)
        state.queue.append(found)
        state.publish(StepCommitted((found,)))

    async def pause(self, waiting: Entry) -> Paused:
        """Write a call as waiting, and the turn with it: nothing is held until somebody answers."""
        state = self._state
        steps = state.steps + 1
        change = replace(self._change([waiting], steps, None), paused=True)
        async with self._transaction() as tx:
            released = await turn_writes.commit_step(tx, state.lease, change)
        state.publish(PausedTurn(state.turn.turn, steps, state.usage, waiting))
        return Paused(released)

    async def end(self, stop: str, error: MemserverError | None = None) -> Ended:
        state = self._state
        if state.alert is not None:
            state.warned = False  # the alert was never committed: it comes again
        change = self._change([], state.steps, stop, None if error is None else as_json(error))
        async with self._transaction() as tx:
            released = await self._write(tx, change, state.queue)
        self._report_end(stop, change.error)
        return Ended(stop, released)

    def _transaction(self) -> AbstractAsyncContextManager[Transaction]:
        return self._state.deps.database.tenant(self._state.lease.tenant)

    async def _write(self, tx: Transaction, change: StepCommit, queue: list[Entry]) -> bool:
        """Write a change; with the turn's end, what follows when it leaves the queue too long."""
        state = self._state
        released = await turn_writes.commit_step(tx, state.lease, change)
        if change.ended and self._is_too_long(queue):
            await jobs.defer(tx, compaction_job(state.lease.tenant, state.lease.agent_id))
        return released

    def _is_too_long(self, queue: list[Entry]) -> bool:
        """Whether the next turn should find a shorter queue.

        One that fits can wait for the alert. Else that turn would have to evict first, while somebody waits.
        """
        budget, warned = self._state.budget, self._state.warned
        return budget is not None and (
            not budget.fits(queue) or (warned and budget.over_target(queue))
        )

    def _change(
        self, added: list[Entry], steps: int, stop: str | None, error: JsonObject | None = None
    ) -> StepCommit:
        state = self._state
        makes_step = steps > state.steps or (stop is not None and state.turn.kind != "import")
        return StepCommit(
            turn=state.turn,
            model=state.model_name,
            messages=added,
            steps=steps,
            usage=state.usage,
            queue_start=state.queue_start,
            pressure_warned=state.warned,
            token_scale=state.counting.scale,
            ended=stop is not None,
            stop_reason=stop or state.pending_stop,
            error=error,
            measured=self._measure(added) if makes_step else turn_steps.NOTHING,
        )

    def _measure(self, added: list[Entry]) -> Mapping[str, Any]:
        """What the step cost that is stored now, or the request that failed instead of it."""
        state = self._state
        position = added[0].position if added else None
        measured = state.meter.take()
        version = state.view.snapshot.state.history_version if state.traces else None
        return turn_steps.parameters(
            state.steps + 1, position, state.model.name, measured, traced=version
        )

    def _report_end(self, stop: str, error: JsonObject | None = None) -> None:
        state = self._state
        state.publish(EndedTurn(state.turn.turn, state.steps, stop, state.usage, error))
