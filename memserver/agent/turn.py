"""One turn: the step loop from a message to its answer.

Each step asks the model for one tool call, runs it, and commits call, effect and result together. What
was committed stands: a turn taken up again after a crash resumes after its last step. A call that needs a
person's approval, or the caller to run it, pauses the turn; the answer takes it up again. Under memory
pressure the alert's steps follow the answer (`pressure`).
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Literal
from zoneinfo import ZoneInfo

from memserver.agent.auto_recall import SEARCH, AutoRecall
from memserver.agent.calls import run_call
from memserver.agent.compaction import Compactor, Snapshot, check_room, compaction_job
from memserver.agent.context import AgentSnapshot, PromptParts, as_sent, build_prompt, render_queue
from memserver.agent.counting import Counting
from memserver.agent.deadline import Deadline
from memserver.agent.dependencies import TurnDependencies, auto_recall_floor, form_of, layout_of
from memserver.agent.endings import (
    CANCELLED,
    CUT_OFF,
    DIED,
    GONE,
    INTERRUPTED,
    abandoned,
    as_json,
    closed_by,
)
from memserver.agent.events import (
    Event,
    StepCommitted,
    TextDelta,
    TurnEnded,
    TurnPaused,
    TurnStarted,
)
from memserver.agent.incoming_events import NOTHING_TO_DO, began_with_event
from memserver.agent.options import AgentOptions
from memserver.agent.pressure import (
    ENDS_IT_FOLLOWS,
    NOTHING_TO_SAVE,
    PressureSteps,
    tools_to_save_by,
)
from memserver.agent.rendering import is_sent
from memserver.agent.reply_modes import InvalidReplies, ask_for_step, complaint, said, tool_specs
from memserver.agent.tool_choice import ToolChoice
from memserver.agent.turn_clock import TurnClock
from memserver.errors import (
    ContextOverflow,
    DatabaseError,
    LeaseLost,
    MemserverError,
    ModelRefused,
    ProtocolViolation,
    ToolProcessEnded,
    TurnTimeout,
)
from memserver.llm.base import Reply
from memserver.memory.queue import Budget
from memserver.memory.results import READ_TOOL
from memserver.messages import (
    CallRecord,
    CallState,
    JsonObject,
    Message,
    Section,
    ToolSpec,
    WaitsFor,
)
from memserver.storage import jobs, leases, recall
from memserver.storage.database import LazyTransaction, Transaction
from memserver.storage.leases import ClaimedTurn, StepCommit
from memserver.storage.tools import grants_from_row
from memserver.tools.memory_tools import SEND_MESSAGE
from memserver.tools.registry import Tool, ToolContext

logger = logging.getLogger(__name__)

MOST_SHRUNK = 3
"""Prompts refused as too long after which the turn fails."""
PAUSED = "requires_action"
"""Why a turn goes no further for now: its state in storage, and what its callers are told."""


class TurnRun:
    """One turn while it runs."""

    def __init__(self, deps: TurnDependencies, work: ClaimedTurn, queue: list[Message]) -> None:
        self._deps = deps
        self._work = work
        self._queue_start = work.state.queue_start
        self._warned = work.state.pressure_warned
        self._steps = work.turn.steps
        self._usage = work.turn.usage
        self._invalid = InvalidReplies()
        self._shrunk = 0
        self._alert: Message | None = None
        self._pressure = PressureSteps(work.turn.stop_reason, work.turn.steps)
        self._budget: Budget | None = None
        self._options = AgentOptions.model_validate(work.agent.options)
        tenant = work.lease.tenant
        self._model = deps.models.get(work.agent.model, tenant)
        self._queue = as_sent(queue, self._model)
        # An import asks for no answer that somebody waits for, and its work grows with its size.
        imported = work.turn.kind == "import"
        self._deadline = Deadline(None if imported else deps.limits.turn_timeout)
        self._first = work.turn.first_position
        self._clock = TurnClock(self._options.clock, deps.clock, queue)
        self._replied = any(
            message.position >= self._first and is_sent(message) for message in queue
        )
        self._of_event = began_with_event(queue, self._first)
        self._choice = ToolChoice(deps.tools, work.grants)
        self._snapshot = AgentSnapshot(
            agent=work.agent,
            state=work.state,
            sections=work.sections,
            summary=work.summary,
            tools=self._specs(work.sections),
            zone=ZoneInfo(self._options.timezone),
            protocol=self._options.protocol,
            form=form_of(self._options, deps.limits),
        )
        self._counting = Counting(self._model, self._snapshot.form, work.state.token_scale)
        self._compactor = Compactor(deps, self._model, tenant, self._snapshot.zone)

    async def run(self) -> bool:
        """ClaimedTurn the turn to its end.

        Returns:
            Whether the lease was given up, since nothing else waits or the turn itself does.

        Raises:
            LeaseLost: another worker took over; nothing more may be done here.
            DatabaseError: the database failed; the turn stays and is taken up again.
        """
        self._tell(TurnStarted(self._work.turn.turn))
        try:
            await self._close_interrupted()
            if self._work.turn.kind == "import":
                await self._make_room()
                return await self._end("imported")
            if self._choice.is_own:
                await self._know_tools()
            answered = self._answered()
            if answered is None:
                return await self._answer()
            stop, released = await self._resume(answered)
            if stop is not None:
                self._tell_end(stop)
                return released
            await self._refresh()
            return await self._answer()
        except DatabaseError:  # a lost lease among them
            raise
        except MemserverError as error:
            return await self._fail(error)

    async def _answer(self) -> bool:
        await self._recall_first()
        while True:
            prompt = await self._make_room()
            last = self._is_last
            try:
                reply = await self._ask(prompt, last=last)
            except ContextOverflow as error:
                await self._shrink(prompt, error)
                continue
            except ProtocolViolation as error:
                stop, released = await self._note_violation(error, last=last)
            else:
                stop, released = await self._act(reply, last=last)
            if stop == PAUSED:
                return released
            if stop is not None:
                self._tell_end(stop)
                return released
            await self._refresh()

    async def _know_tools(self) -> None:
        """What the agent's own choice of tools needs: the tools, and what was called so far."""
        async with self._deadline.cutting():
            await self._choice.wait_for_tools()
        self._snapshot = replace(self._snapshot, tools=self._specs(self._snapshot.sections))
        database, lease = self._deps.database, self._work.lease
        await self._choice.recount(database, lease, self._evictable, self._first)

    async def _recall_first(self) -> None:
        """Automatic recall, where the agent has it and nothing has come of a message yet."""
        floor = auto_recall_floor(self._options, self._deps.limits)
        asked = self._queue[-1] if self._queue else None
        if floor is None or asked is None or asked.position != self._first or asked.role != "user":
            return
        prompt = await self._make_room()
        if not self._queue_start or self._choice.tools.get(SEARCH) is None:
            return
        search = AutoRecall(self._work.agent.id, asked.text, self._queue_start, floor)
        record = CallRecord(search.call(), "running")
        call = Message(asked.position + 1, "assistant", "", self._clock.now(), 0, call=record)
        async with (
            self._deadline.cutting(),
            LazyTransaction(self._deps.database, self._work.lease.tenant) as lazy,
        ):
            reader = self._counting.reader(call, prompt.budget, can_read_on=self._can_read_on)
            result = await search.result(self._deps.recall, lazy, self._snapshot.zone, reader)
        if result is None:
            return
        found = await self._closed(call, "done", result)
        async with self._deps.database.tenant(self._work.lease.tenant) as tx:
            await leases.commit_step(tx, self._work.lease, self._change([found], self._steps, None))
        self._queue.append(found)
        self._tell(StepCommitted((found,)))

    async def _make_room(self) -> PromptParts:
        """The prompt's frame, after as many evictions as it takes for the queue to fit."""
        prompt = await self._frame()
        check_room(prompt.budget)
        while not prompt.budget.fits(self._queue) and len(self._evictable) > 1:
            await self._evict(prompt)
            prompt = await self._frame()
            check_room(prompt.budget)
        self._budget = prompt.budget
        return prompt

    async def _evict(self, prompt: PromptParts) -> None:
        lease = self._work.lease
        snapshot = Snapshot(
            agent_id=lease.agent_id,
            queue_start=self._queue_start,
            queue=self._evictable,
            summary=self._snapshot.summary,
            budget=prompt.budget,
        )
        compacted = await self._compactor.evict(snapshot, self._deadline, lease)
        if compacted is not None:
            self._tell(compacted)
        await self._refresh()

    async def _shrink(self, prompt: PromptParts, error: ContextOverflow) -> None:
        """The endpoint says that the prompt is too long, though it fits by our count: evict.

        From then on more is counted, so that a single long message is shown shorter; unless the window is
        smaller than it was thought to be, which the next prompt then fits.

        Raises:
            ContextOverflow: that was done in this turn often enough.
        """
        if self._shrunk >= MOST_SHRUNK:
            raise ContextOverflow(
                "The model endpoint says that the prompt is too long, also after an eviction.",
                hint="Set MEMSERVER_LLM_CONTEXT_WINDOW to what the model has, or a smaller "
                "context_window for the agent.",
                window=error.window,
            ) from error
        self._shrunk += 1
        if error.window is not None and error.window < prompt.budget.window:
            return
        await self._counting.learn_overflow(prompt, self._queue, self._snapshot.tools)
        if len(self._evictable) > 1:
            await self._evict(prompt)

    @property
    def _evictable(self) -> list[Message]:
        """The queue, without the message that is answered where it stays in sight though it was evicted."""
        return [each for each in self._queue if each.position >= self._queue_start]

    async def _outcome(self, ended: Message, *, last: bool) -> str | None:
        """Why the turn ends after this step; None if another one follows, be it the alert's."""
        stop = self._stop_reason(ended, last=last)
        if stop is None or self._warned or self._pressure.run:
            return stop
        self._alert = await self._alert_after(ended, stop, last=last)
        return stop if self._alert is None else None

    async def _alert_after(self, ended: Message, stop: str, *, last: bool) -> Message | None:
        """The alert, if memory is short, and there is something older than this turn and a step to save it in."""
        budget, queue = self._budget, [*self._queue, ended]
        if budget is None or not budget.under_pressure(queue) or queue[0].position >= self._first:
            return None
        if not self._alerts or not tools_to_save_by(self._choice.tools, self._may_call()):
            self._warned = True  # it can't save anything, so there is nothing to say
            return None
        if last or stop not in ENDS_IT_FOLLOWS:
            self._warned = budget.over_target(queue)  # too late: room is made all the same
            return None
        percent = 100 * budget.used(queue) // budget.capacity
        text = self._deps.prompts.render("pressure_alert.md", percent=percent)
        self._pressure.begin(stop, self._steps + 1)
        self._warned = True
        alert = Message(ended.position + 1, "system", text, self._clock.now(), 0)
        return await self._counting.entry(alert)

    async def _ask(self, prompt: PromptParts, *, last: bool) -> Reply:
        work = self._work
        tools = self._offered(last=last)
        step = self._steps + 1
        streaming = not self._pressure.run and self._deps.events.wants_text(
            work.agent.id, work.turn.turn
        )
        async with self._deadline.cutting():
            queue = await render_queue(
                self._snapshot, self._queue, prompt.budget.largest_counted, self._model
            )
            try:
                reply = await ask_for_step(
                    self._model,
                    self._options.protocol,
                    (prompt.messages(queue), tools),
                    max_tokens=prompt.budget.reserved,
                    on_text=(lambda text: self._tell(TextDelta(step, text))) if streaming else None,
                )
            except ProtocolViolation as error:
                reply = self._invalid.as_answer(error, tools, last=last)
        self._usage += reply.usage
        await self._counting.learn(prompt, self._queue, tools, reply.usage)
        self._budget = prompt.budget.with_scale(self._counting.factor)
        return reply

    async def _act(self, reply: Reply, *, last: bool) -> tuple[str | None, bool]:
        """Run the call and commit the step.

        Returns:
            Why the turn ends with it, or None; and whether the lease was given up.
        """
        self._invalid = InvalidReplies()
        tool = self._tool(reply.call.name)
        assert tool is not None, "the reply parser has checked that it was offered"
        message = Message(
            position=self._next_position(),
            role="assistant",
            text=said(reply),
            created_at=self._clock.now(),
            tokens=0,
            thought=str(reply.call.arguments.get("inner_thought") or reply.text),
            call=CallRecord(reply.call, "running"),
            fields=reply.fields,
        )
        if tool.kind == "client":
            return await self._pause(message, "client")
        if self._choice.tools.rule(reply.call.name).approval:
            return await self._pause(message, "approval")
        if not tool.transactional:
            return await self._act_outside(tool, message, last=last)
        async with LazyTransaction(self._deps.database, self._work.lease.tenant) as lazy:
            ended = await self._run_tool(tool, message, lazy)
            stop = await self._outcome(ended, last=last)
            released = await self._write(await lazy.get(), [ended], stop)
        self._step_done([ended])
        return stop, released

    async def _act_outside(
        self, tool: Tool, message: Message, *, last: bool
    ) -> tuple[str | None, bool]:
        """Run a tool whose effect is not ours: the call is stored as running before it starts."""
        running = await self._counting.entry(message)
        async with self._deps.database.tenant(self._work.lease.tenant) as tx:
            await self._write(tx, [running], None)
        return await self._finish_outside(tool, running, last=last)

    async def _finish_outside(
        self, tool: Tool, running: Message, *, last: bool
    ) -> tuple[str | None, bool]:
        """Run what is stored as running, and commit its end."""
        try:
            async with LazyTransaction(self._deps.database, self._work.lease.tenant) as lazy:
                ended = await self._run_tool(tool, running, lazy)
        except TurnTimeout:
            await self._close(await self._closed(running, "interrupted", CUT_OFF), None)
            raise
        except ToolProcessEnded as error:
            turn = self._work.turn
            logger.warning(
                "Agent %s: in turn %d the tool %s ended the process of its own that it ran in.",
                *(turn.agent_id, turn.turn, tool.spec.name),
            )
            ended = await self._closed(running, "interrupted", DIED)
            if self._died():
                await self._close(ended, None)
                raise abandoned() from error
        stop = await self._outcome(ended, last=last)
        return stop, await self._close(ended, stop)

    def _died(self) -> bool:
        """Whether a process ended during a call of this turn."""
        ours = takewhile(lambda each: each.position >= self._first, reversed(self._queue))
        return any(each.call is not None and each.call.result == DIED for each in ours)

    async def _close(self, ended: Message, stop: str | None) -> bool:
        """Commit the end of a call that was stored as running."""
        async with self._deps.database.tenant(self._work.lease.tenant) as tx:
            released = await self._store_close(tx, ended, stop)
        self._step_done([ended])
        return released

    async def _store_close(self, tx: Transaction, ended: Message, stop: str | None) -> bool:
        await leases.close_call(tx, self._work.lease, ended)
        return await self._store(tx, self._change(self._said_now, self._steps + 1, stop), [ended])

    async def _pause(self, message: Message, waits_for: WaitsFor) -> tuple[str | None, bool]:
        """Store the call as waiting, and the turn with it: nothing is held until somebody answers."""
        assert message.call is not None
        record = replace(message.call, state="waiting", waits_for=waits_for)
        waiting = await self._counting.entry(replace(message, call=record))
        steps = self._steps + 1
        change = replace(self._change([waiting], steps, None), paused=True)
        async with self._deps.database.tenant(self._work.lease.tenant) as tx:
            released = await leases.commit_step(tx, self._work.lease, change)
        self._tell(TurnPaused(self._work.turn.turn, steps, self._usage, waiting))
        return PAUSED, released

    def _answered(self) -> Message | None:
        """The call of this turn that has waited and was answered, if that is why it was taken up."""
        newest = self._queue[-1] if self._queue else None
        if newest is None or newest.call is None or newest.call.state != "waiting":
            return None
        return newest

    async def _resume(self, message: Message) -> tuple[str | None, bool]:
        """Go on with a call that was answered: run it, or close it with what the answer says.

        Returns:
            As `_act`.
        """
        assert message.call is not None
        answer = message.call.answer or {}
        self._queue.remove(message)
        self._steps -= 1  # it was counted when it was stored
        last = self._is_last
        if answer.get("cancelled"):
            return "cancelled", await self._close(
                await self._closed(message, "interrupted", CANCELLED), "cancelled"
            )
        if answer.get("approved"):
            return await self._run_approved(message, last=last)
        return await self._close_as(message, *closed_by(message.call), last=last)

    async def _run_approved(self, message: Message, *, last: bool) -> tuple[str | None, bool]:
        assert message.call is not None
        lease = self._work.lease
        tool = self._choice.tools.get(message.call.call.name)
        if tool is None or tool.kind == "client":
            return await self._close_as(message, "failed", GONE, last=last)
        if tool.transactional:
            try:
                async with LazyTransaction(self._deps.database, lease.tenant) as lazy:
                    ended = await self._run_tool(tool, message, lazy)
                    stop = await self._outcome(ended, last=last)
                    released = await self._store_close(await lazy.get(), ended, stop)
            except TurnTimeout:
                await self._close(await self._closed(message, "interrupted", CUT_OFF), None)
                raise
            self._step_done([ended])
            return stop, released
        running = replace(message, call=replace(message.call, state="running"))
        async with self._deps.database.tenant(lease.tenant) as tx:
            await leases.close_call(tx, lease, running)
        return await self._finish_outside(tool, running, last=last)

    async def _close_as(
        self, message: Message, state: Literal["done", "failed"], result: str, *, last: bool
    ) -> tuple[str | None, bool]:
        assert message.call is not None
        ended = await self._closed(message, state, result)
        stop = await self._outcome(ended, last=last)
        return stop, await self._close(ended, stop)

    async def _run_tool(self, tool: Tool, message: Message, lazy: LazyTransaction) -> Message:
        """The message with its call ended, one way or the other."""
        assert message.call is not None
        budget = self._budget or (await self._frame()).budget
        context = ToolContext(
            agent_id=self._work.agent.id,
            tenant=self._work.lease.tenant,
            turn=self._work.turn.turn,
            call_id=message.call.call.id,
            transaction=lazy,
            database=self._deps.database,
            archival=self._deps.archival,
            recall=self._deps.recall,
            before=self._first,
            position=message.position,
            # An approval may come days after the call.
            now=self._clock.now() if message.call.waits_for else message.created_at,
            zone=self._snapshot.zone,
            reader=self._counting.reader(message, budget, can_read_on=self._can_read_on),
            alone=self._was_killed or self._died() or tool.spec.name in self._deps.deadly,
        )
        call = message.call.call
        async with self._deadline.cutting():
            state, result = await run_call(tool, call, context, self._deps.limits.calls)
        return await self._closed(message, state, result)

    def _stop_reason(self, ended: Message, *, last: bool) -> str | None:
        """Why the turn ends after this step, or None if there is another one, apart from the alert's."""
        assert ended.call is not None
        name, done = ended.call.call.name, ended.call.state == "done"
        missing = self._choice.ended(name, done=done)
        self._replied = self._replied or is_sent(ended)
        if self._pressure.run:
            return self._pressure.next_stop(ended, last=last)
        wants_more = ended.call.call.arguments.get("request_heartbeat") is True
        if is_sent(ended) and (last or not wants_more):
            return "message_sent"
        if done and self._choice.tools.rule(name).terminal and not missing:
            return "terminal_tool"
        if last:
            return "max_steps"
        if missing or not done or wants_more or self._must_still_reply():
            return None
        return "message_sent" if self._replied else "no_heartbeat"

    async def _note_violation(
        self, error: ProtocolViolation, *, last: bool
    ) -> tuple[str | None, bool]:
        """Feed an invalid reply back to the model; after too many of them the turn fails."""
        self._usage += error.usage
        logger.info("Invalid reply: %s It began: %.200s", error.complaint, error.raw)
        self._invalid.add(error, self._options.protocol)
        text = complaint(self._deps.prompts, error, self._options.protocol)
        note = await self._counting.entry(
            Message(self._next_position(), "system", text, self._clock.now(), 0)
        )
        stop = (self._pressure.stop_reason or "max_steps") if last else None
        async with self._deps.database.tenant(self._work.lease.tenant) as tx:
            released = await self._write(tx, [note], stop)
        self._step_done([note])
        return stop, released

    async def _write(self, tx: Transaction, added: list[Message], stop: str | None) -> bool:
        """Commit what came of a step, and the alert that follows it, if any."""
        change = self._change([*added, *self._said_now], self._steps + 1, stop)
        return await self._store(tx, change, added)

    async def _store(self, tx: Transaction, change: StepCommit, added: list[Message]) -> bool:
        """Commit a change; with the turn's end, what follows when it left the queue too long."""
        released = await leases.commit_step(tx, self._work.lease, change)
        # Before the alert's steps are over nothing is evicted that could still wait.
        if change.ended and self._warned and self._over_target(added):
            lease = self._work.lease
            await jobs.defer(tx, compaction_job(lease.tenant, lease.agent_id))
        return released

    def _over_target(self, added: list[Message]) -> bool:
        return self._budget is not None and self._budget.over_target([*self._queue, *added])

    def _step_done(self, added: list[Message]) -> None:
        alert, self._alert = self._said_now, None
        self._steps += 1
        self._queue.extend([*added, *alert])
        for messages in filter(None, (added, alert)):
            self._tell(StepCommitted(tuple(messages)))

    @property
    def _said_now(self) -> list[Message]:
        """The alert that is committed with this step."""
        return [] if self._alert is None else [self._alert]

    async def _fail(self, error: MemserverError) -> bool:
        """End the turn with an error; where it was answered, as it would have ended without the alert."""
        if isinstance(error, ModelRefused):
            self._usage += error.usage
        if self._pressure.stop_reason is None or self._alert is not None:
            return await self._end("error", error)
        agent, turn = self._work.agent.id, self._work.turn.turn
        logger.warning("Agent %s: nothing was saved after turn %d: %s", agent, turn, error)
        return await self._end(self._pressure.stop_reason)

    async def _end(self, stop: str, error: MemserverError | None = None) -> bool:
        """End the turn without a further step."""
        if self._alert is not None:
            self._warned = False  # the alert was never committed: it comes again
        change = self._change([], self._steps, stop, error)
        async with self._deps.database.tenant(self._work.lease.tenant) as tx:
            released = await self._store(tx, change, [])
        self._tell_end(stop, change.error)
        return released

    def _change(
        self,
        added: list[Message],
        steps: int,
        stop: str | None,
        error: MemserverError | None = None,
    ) -> StepCommit:
        return StepCommit(
            turn=self._work.turn,
            model=self._work.agent.model,
            messages=added,
            steps=steps,
            usage=self._usage,
            queue_start=self._queue_start,
            pressure_warned=self._warned,
            token_scale=self._counting.scale,
            ended=stop is not None,
            stop_reason=stop or self._pressure.stop_reason,
            error=as_json(error) if error is not None else None,
        )

    async def _close_interrupted(self) -> None:
        """End the calls that a dead worker left running, so that none stands without a result."""
        for index, message in enumerate(self._queue):
            if message.call is None or not message.call.is_open:
                continue
            waited = message.call.state == "waiting" and message.call.answer is not None
            if waited and message.position >= self._first:
                continue
            why = DIED if self._was_killed else INTERRUPTED
            closed = await self._closed(message, "interrupted", why)
            async with self._deps.database.tenant(self._work.lease.tenant) as tx:
                await leases.close_call(tx, self._work.lease, closed)
            self._queue[index] = closed
            tool = self._choice.tools.get(message.call.call.name)
            if self._was_killed and tool is not None and tool.kind == "python":
                self._deps.deadly.add(tool.spec.name)

    async def _closed(self, message: Message, state: CallState, result: str) -> Message:
        assert message.call is not None
        record = replace(message.call, state=state, result=result, finished_at=self._clock.now())
        return await self._counting.entry(replace(message, call=record))

    async def _refresh(self) -> None:
        """Read again what a tool, the API, another agent or an eviction may have changed."""
        async with self._deps.database.tenant(self._work.lease.tenant) as tx:
            row = await recall.context_row(tx, self._work.agent.id)
        if row is None:
            raise LeaseLost("The agent was deleted.")
        sections = leases.sections_from_row(row)
        state = leases.state_from_row(row)
        if state.queue_start != self._queue_start:
            self._queue_start, self._warned = state.queue_start, state.pressure_warned
            self._queue = [  # what is asked stays in sight while it is answered
                each
                for each in self._queue
                if each.position >= state.queue_start or each.position == self._first
            ]
        self._choice.renew(grants_from_row(row))
        self._snapshot = replace(
            self._snapshot,
            state=state,
            sections=sections,
            summary=leases.summary_from_row(row),
            tools=self._specs(sections),
        )

    async def _frame(self) -> PromptParts:
        model, prompts = self._model, self._deps.prompts
        async with self._deadline.cutting():
            layout = await layout_of(model, self._options, self._deps.limits)
            snapshot, scale = self._clock.shown(self._snapshot), self._counting.scale
            prompt = await build_prompt(snapshot, model, prompts, layout, scale)
        if prompt.tools is not self._snapshot.tools:
            self._snapshot = replace(self._snapshot, tools=prompt.tools)
        return prompt

    def _specs(self, sections: Sequence[Section]) -> tuple[ToolSpec, ...]:
        return tool_specs(self._choice.tools, sections, self._options.protocol)

    def _offered(self, *, last: bool) -> tuple[ToolSpec, ...]:
        """The tools that may be called in this step."""
        if self._pressure.run:
            return tools_to_save_by(self._choice.tools, self._may_call())
        if last and self._must_still_reply():
            return tuple(spec for spec in self._snapshot.tools if spec.name == SEND_MESSAGE)
        calls = self._may_call()
        return (*calls, NOTHING_TO_DO.spec) if self._of_event and calls else calls

    def _may_call(self) -> tuple[ToolSpec, ...]:
        names = self._choice.offered()
        return tuple(spec for spec in self._snapshot.tools if names is None or spec.name in names)

    @property
    def _alerts(self) -> bool:
        own = self._options.pressure_alert
        return self._deps.limits.pressure_alert if own is None else own

    def _next_position(self) -> int:
        newest = self._queue[-1].position if self._queue else self._first
        return max(newest, self._first) + 1

    def _tool(self, name: str) -> Tool | None:
        idle = NOTHING_TO_SAVE if self._pressure.run else NOTHING_TO_DO if self._of_event else None
        return idle if idle and name == idle.spec.name else self._choice.tools.get(name)

    def _must_still_reply(self) -> bool:
        return self._options.must_reply and not (self._replied or self._of_event)

    @property
    def _is_last(self) -> bool:
        """Whether the next step is the last one that may be made."""
        return self._steps + 1 >= self._max_steps or self._pressure.none_after(self._steps)

    @property
    def _max_steps(self) -> int:
        return self._options.max_steps or self._deps.limits.max_steps

    @property
    def _can_read_on(self) -> bool:
        return self._choice.tools.get(READ_TOOL) is not None

    @property
    def _was_killed(self) -> bool:
        """Whether a process ended in an earlier attempt: what is given back was no attempt."""
        return self._work.turn.attempts > 1

    def _tell(self, event: Event) -> None:
        self._deps.events.publish(self._work.agent.id, self._work.turn.turn, event)

    def _tell_end(self, stop: str, error: JsonObject | None = None) -> None:
        turn = self._work.turn.turn
        self._tell(TurnEnded(turn, self._steps, stop, self._usage, error))
