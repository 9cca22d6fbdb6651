"""Who serves which agent. Takes leases, works inboxes in order, and finds what dead workers left.

In this process one task at most serves an agent; over all processes the lease sees to that. Nothing
here holds a lock while a model thinks.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from time import perf_counter
from uuid import UUID

from opentelemetry.context import Context

from memserver.agent.budget import find_excess
from memserver.agent.dependencies import TurnDependencies
from memserver.agent.endings import abandoned, as_json, stopping
from memserver.agent.events import EndedTurn, WakeUp
from memserver.agent.live_text import READERS_CHANNEL, TEXT_CHANNEL
from memserver.agent.turn import TurnRun
from memserver.agent.turn_record import Ended, Paused
from memserver.errors import Conflict, DatabaseError, LeaseLost, MemserverError, NotFound
from memserver.messages import Entry, JsonObject
from memserver.storage import calls, inbox, leases, recall, turn_writes
from memserver.storage.cancellation import CANCELLED, STOPS_CHANNEL
from memserver.storage.database import Transaction
from memserver.storage.inbox import PLACES_PER_TURN
from memserver.storage.leases import RELEASED_CHANNEL, TURNS_CHANNEL, ClaimedTurn, notify
from memserver.storage.repeating import end, repeat
from memserver.storage.turn_writes import StepCommit
from memserver.telemetry import ids, spans
from memserver.telemetry.metrics import TURN
from memserver.watchdog import Watchdog

logger = logging.getLogger(__name__)

TEXT_SECONDS = 0.05
"""Between two sendings of text to other processes: all notifications of a database are written one after the other."""
DRAIN_SECONDS = 4
"""What turns get to end when the server has to: less than the requests that wait for them."""
MOST_TAKEN_OVER = 100
"""Agents that one look for abandoned work takes up."""
MOST_ATTEMPTS = 5
"""Times that a turn is taken up, and never given back, before it is given up as one that kills its workers."""
MOST_BLOCKED = 1
"""Processes that a turn may block until they are killed, from its second attempt on."""

_FAULT = MemserverError("The turn failed inside the server; the log says why.")


class Worker:
    def __init__(
        self, deps: TurnDependencies, watchdog: Watchdog, *, name: str, lease_seconds: float
    ) -> None:
        self.name = name
        self._watchdog = watchdog
        self._deps = deps
        self._lease_seconds = lease_seconds
        self._serving: dict[UUID, asyncio.Task[None]] = {}
        self._rerun: set[UUID] = set()
        self._leases: dict[UUID, leases.Lease] = {}
        self._running: dict[UUID, int] = {}
        """The turn of each agent that runs here now."""
        self._releasing: dict[UUID, asyncio.Task[None]] = {}
        self._requests: dict[UUID, dict[int, tuple[object, Context]]] = {}
        """The ids and spans of the requests here that turns were posted by, while their agent is served."""
        self._stopped = False
        self._draining = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve while the block runs; at its end release every lease."""
        interval = self._lease_seconds / 3
        background = [
            asyncio.create_task(repeat(self._sweep, interval)),
            asyncio.create_task(repeat(self._renew, interval)),
            asyncio.create_task(repeat(self._listen, interval)),
            asyncio.create_task(repeat(self._send_text, interval)),
        ]
        try:
            yield
        finally:
            self._stopped = self._draining = True
            await end(*background, *self._releasing.values(), *self._serving.values())
            await self._release_all()

    def drain(self) -> None:
        """Begin no turn any more: other processes take up what waits. Those that run have a while to end.

        Callers that wait for one are then sent away.
        """
        self._draining = True
        stop = partial(self._deps.events.stop, stopping())
        asyncio.get_running_loop().call_later(DRAIN_SECONDS, stop)

    def ensure_serving(self, agent_id: UUID, tenant: str, turn: int | None = None) -> bool:
        """See to it that the agent's inbox is worked; returns at once. `turn` is one that the running request waits for.

        Returns:
            Whether that begins only now; else a turn may be under way already. A worker that is to
            stop begins nothing: another one takes up what came too late.
        """
        if self._draining:
            return False
        if turn is not None and (request_id := ids.current().get("request_id")):
            self._requests.setdefault(agent_id, {}).setdefault(turn, (request_id, spans.current()))
        if agent_id in self._serving:
            self._rerun.add(agent_id)
            return False
        task = asyncio.create_task(self._work_inbox(agent_id, tenant), name=f"agent {agent_id}")
        self._serving[agent_id] = task
        task.add_done_callback(partial(self._served, agent_id, tenant))
        return True

    def serves(self, agent_id: UUID) -> bool:
        """Whether the agent's turns run here: then their events need no looking for."""
        return agent_id in self._serving

    def stop(self, agent_id: UUID, turn: int = 0) -> None:
        """Cut off the run of a turn, or of any if it is 0, if it is here: what it is to write is refused by now.

        All that wait for a turn of the agent look how it stands.
        """
        running = self._running.get(agent_id)
        if running is not None and turn in (0, running):
            self._leases.pop(agent_id, None)
            self._serving[agent_id].cancel()
            self._rerun.add(agent_id)
        self._deps.events.notify(agent_id)

    def _served(self, agent_id: UUID, tenant: str, task: asyncio.Task[None]) -> None:
        """What follows when the task that served an agent has ended, one way or the other."""
        del self._serving[agent_id]
        again = agent_id in self._rerun
        self._rerun.discard(agent_id)
        if not again:
            self._requests.pop(agent_id, None)
        if self._stopped:
            return
        # Nobody has reported yet what those wait for whose turn comes after a waiting call.
        self._deps.events.notify(agent_id)
        error = None if task.cancelled() else task.exception()
        if error is None:
            if again:
                self.ensure_serving(agent_id, tenant)
        elif isinstance(error, MemserverError):
            # The turn stays in the inbox; the next sweep takes it up, here or elsewhere.
            logger.warning("Agent %s: %s", agent_id, error)
            releasing = asyncio.create_task(self._release(agent_id, patient=True))
            self._releasing[agent_id] = releasing
            releasing.add_done_callback(lambda _: self._releasing.pop(agent_id))
        else:
            logger.error("Agent %s: a turn failed by a fault of ours.", agent_id, exc_info=error)
            failing = asyncio.create_task(self._fail_turn(agent_id, tenant))
            self._serving[agent_id] = failing
            failing.add_done_callback(partial(self._served, agent_id, tenant))

    async def _work_inbox(self, agent_id: UUID, tenant: str) -> None:
        if agent_id in self._releasing:  # else that would end the lease which we take now
            await asyncio.wait([self._releasing[agent_id]])
        released = False
        while not released:
            # Before the turn is taken up: it has no lease and no deadline yet, and any worker may have it.
            await self._deps.models.wait_until_ready()
            async with self._deps.database.tenant(tenant) as tx:
                work = await self._take(tx, agent_id)
                if work is None:
                    return
                start, first = work.snapshot.state.queue_start, work.turn.first_position
                queue = await recall.queue(tx, agent_id, start, first + PLACES_PER_TURN)
                if start > first:  # evicted in this turn, in a try that was cut off
                    queue = [*await recall.queue(tx, agent_id, first, first + 1), *queue]
            self._leases[agent_id] = work.lease  # committed: before, a renewal would not find it
            self._running[agent_id] = work.turn.turn
            self._deps.metrics.add_running(1)
            begun = perf_counter()
            try:
                with self._named(work):
                    outcome = await self._attempt(work, queue)
            finally:
                self._deps.metrics.add_running(-1)
                del self._running[agent_id]
            stop = outcome.stop if isinstance(outcome, Ended) else "requires_action"
            self._deps.metrics.record(TURN, perf_counter() - begun, stop)
            released = outcome.released
            if released:
                self._leases.pop(agent_id, None)
            elif self._draining:
                await self._hand_over(agent_id)
                return

    @contextmanager
    def _named(self, work: ClaimedTurn) -> Iterator[None]:
        """Log and trace say which turn runs: the task serves one after the other, and was begun by any request."""
        tenant, agent, turn = work.lease.tenant, work.turn.agent_id, work.turn.turn
        request_id, parent = self._requests.get(agent, {}).pop(
            turn, (work.turn.request_id, Context())
        )
        request = {} if request_id is None else {"request_id": request_id}
        attributes: dict[str, str | int] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.id": str(agent),
            "memserver.tenant": tenant,
            "memserver.turn": turn,
        }
        with (
            ids.bound(**request, tenant=tenant, agent=agent, turn=turn),
            spans.span("invoke_agent", attributes, parent=parent),
        ):
            yield

    async def _attempt(self, work: ClaimedTurn, queue: list[Entry]) -> Paused | Ended:
        """Run a turn. One that was taken up before is marked: it may have killed who ran it."""
        if work.turn.ended:  # cancelled before its place came
            return await self._end(work, work.turn.stop_reason or CANCELLED)
        excess = await find_excess(self._deps.database, work, self._deps.clock())
        if excess is not None:
            return await self._end_failed(work, excess)
        run = TurnRun(self._deps, work, queue)
        if work.turn.attempts == 1:
            return await run.run()
        key = work.turn.agent_id.bytes + work.turn.turn.to_bytes(8)
        blocked = await asyncio.to_thread(self._watchdog.blocked_by, key)
        if blocked < MOST_BLOCKED and work.turn.attempts <= MOST_ATTEMPTS:
            return await self._watchdog.marked(key, run.run())
        logger.error(
            "Agent %s: turn %d is given up; its process died in each of %d attempts.",
            *(work.turn.agent_id, work.turn.turn, work.turn.attempts - 1),
        )
        ended = await self._end_failed(work, abandoned())
        await asyncio.to_thread(self._watchdog.forget, key)
        return ended

    async def _take(self, tx: Transaction, agent_id: UUID) -> ClaimedTurn | None:
        return await leases.acquire(tx, agent_id, self.name, self._lease_seconds)

    async def _fail_turn(self, agent_id: UUID, tenant: str) -> None:
        """A turn that raises an error of our own is not retried forever: it fails, and the agent stays usable."""
        async with self._deps.database.tenant(tenant) as tx:
            work = await self._take(tx, agent_id)
        if work is not None:
            self._leases[agent_id] = work.lease
            await self._end_failed(work, _FAULT)
            self._rerun.add(agent_id)

    async def _end_failed(self, work: ClaimedTurn, failure: MemserverError) -> Ended:
        if work.turn.stop_reason:  # one that was answered has failed only to save something
            return await self._end(work, work.turn.stop_reason)
        return await self._end(work, "error", as_json(failure))

    async def _end(self, work: ClaimedTurn, stop: str, error: JsonObject | None = None) -> Ended:
        turn = work.turn
        change = StepCommit(
            turn=turn,
            model=work.snapshot.agent.model,
            messages=(),
            steps=turn.steps,
            usage=turn.usage,
            queue_start=work.snapshot.state.queue_start,
            pressure_warned=work.snapshot.state.pressure_warned,
            token_scale=work.snapshot.state.token_scale,
            ended=True,
            stop_reason=stop,
            error=error,
        )
        async with self._deps.database.tenant(work.lease.tenant) as tx:
            released = await turn_writes.commit_step(tx, work.lease, change)
        ended = EndedTurn(turn.turn, turn.steps, stop, turn.usage, error)
        self._deps.events.publish(turn.agent_id, turn.turn, ended)
        return Ended(stop, released)

    async def _sweep(self) -> None:
        """Take up work that nobody serves: a dead worker's, or one whose wake-up was lost.

        While the model loads every turn waits, each where somebody listens to it.
        """
        if not self._deps.models.loading():
            await self._take_up_waiting()
        await self._expire_calls()

    async def _take_up_waiting(self) -> None:
        async with self._deps.database.across_tenants() as tx:
            found = await inbox.waiting_agents(tx, MOST_TAKEN_OVER)
        for agent_id, tenant in found:
            self.ensure_serving(agent_id, tenant)

    async def _expire_calls(self) -> None:
        """Resume turns whose calls have waited for an answer as long as they may."""
        seconds = self._deps.limits.waiting_call_seconds
        async with self._deps.database.across_tenants() as tx:
            overdue = await calls.overdue(tx, seconds, MOST_TAKEN_OVER)
        for agent_id, tenant, call_id in overdue:
            # Somebody may have answered just now, or deleted the agent.
            with suppress(Conflict, NotFound):
                async with self._deps.database.tenant(tenant) as tx:
                    call = await calls.lock(tx, agent_id, call_id)
                    await calls.answer(tx, call, {"expired": True}, self.name)
                self.ensure_serving(agent_id, tenant)

    async def _renew(self) -> None:
        held = {agent: self._leases[agent] for agent in self._serving if agent in self._leases}
        if not held:
            return
        async with self._deps.database.across_tenants() as tx:
            still = await leases.renew(tx, self.name, list(held), self._lease_seconds)
        for agent_id, lease in held.items():
            # Meanwhile the agent may have been released and taken again: that is another lease.
            if agent_id not in still and self._leases.get(agent_id) is lease:
                del self._leases[agent_id]
                if agent_id in self._running:
                    self._serving[agent_id].cancel()

    async def _listen(self) -> None:
        """Hear of turns that another worker has moved or somebody has ended."""
        events = self._deps.events
        channels = (TURNS_CHANNEL, STOPS_CHANNEL, READERS_CHANNEL, TEXT_CHANNEL, RELEASED_CHANNEL)
        async for channel, payload in self._deps.database.listen(*channels):
            agent_id, _, turn = payload.partition(" ")
            match channel:
                case _ if channel == RELEASED_CHANNEL:
                    self.ensure_serving(UUID(agent_id), turn)
                case _ if channel == TEXT_CHANNEL:
                    if heard := events.live_text.hear_text(payload):
                        events.deliver(*heard[0], heard[1])
                case _ if channel == READERS_CHANNEL:
                    events.live_text.hear_reader(payload)
                case _ if channel == STOPS_CHANNEL:
                    self.stop(UUID(agent_id), int(turn))
                case _:
                    events.deliver(UUID(agent_id), int(turn), WakeUp())

    async def _send_text(self) -> None:
        """Carry texts to other processes' streams, all that have come together at once."""
        while True:
            notices = await self._deps.events.live_text.outgoing()
            async with self._deps.database.across_tenants() as tx:
                await notify(tx, notices)
            await asyncio.sleep(TEXT_SECONDS)

    async def _release_all(self) -> None:
        for agent_id in list(self._leases):
            await self._hand_over(agent_id)

    async def _hand_over(self, agent_id: UUID) -> None:
        """Release an agent, and have another process take it up at once."""
        lease = self._leases.get(agent_id)
        if lease is None:
            return
        await self._release(agent_id)
        with suppress(DatabaseError):  # then it is found by looking
            async with self._deps.database.across_tenants() as tx:
                await notify(tx, [(RELEASED_CHANNEL, f"{agent_id} {lease.tenant}")])

    async def _release(self, agent_id: UUID, *, patient: bool = False) -> None:
        """Let others have the agent; where the database is away, now or, if that is waited for, when it is back."""
        lease = self._leases.pop(agent_id, None)
        while lease is not None:
            try:
                async with self._deps.database.tenant(lease.tenant) as tx:
                    await leases.release(tx, lease)
            except DatabaseError as error:
                if not patient or isinstance(error, LeaseLost):
                    logger.info("The lease of agent %s is left to expire.", agent_id)
                    return
                await asyncio.sleep(self._lease_seconds / 3)
            else:
                return
