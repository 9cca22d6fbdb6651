"""One call's life: it runs in the step's transaction, or outside of it, or waits for somebody's answer.

A call whose effect is in our own database is one transaction with its effect and its result; any other is stored
as running before it starts.
"""

import asyncio
import logging
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Literal

from memserver.agent.endings import (
    CANCELLED,
    CUT_OFF,
    DIED,
    GONE,
    INTERRUPTED,
    abandoned,
    closed_by,
)
from memserver.agent.options import CallLimits
from memserver.agent.pressure import NOTHING_TO_SAVE, MemoryPressure
from memserver.agent.rendering import is_sent
from memserver.agent.reply_modes import said
from memserver.agent.turn_record import Continue, Ended, Outcome, TurnWriter
from memserver.agent.turn_state import TurnState
from memserver.errors import (
    EmbeddingError,
    InvalidInput,
    NotFound,
    ToolError,
    ToolProcessEnded,
    TurnTimeout,
)
from memserver.llm.base import Reply
from memserver.messages import RESERVED, CallRecord, Entry, FunctionCall, Picture, WaitsFor
from memserver.metering import timed
from memserver.storage.database import LazyTransaction
from memserver.telemetry.metrics import TOOL
from memserver.telemetry.spans import span
from memserver.tools.foreign import cut, run_contained
from memserver.tools.shown import take
from memserver.tools.tool import RunnableTool, ToolContext, idle_tool

logger = logging.getLogger(__name__)

NOTHING_TO_DO = idle_tool("nothing_to_do", "Leave it at that: nothing has to be said or done.")
"""For a turn that began with an event: nobody waits for an answer."""


REFUSALS = (ToolError, InvalidInput, NotFound, EmbeddingError)
"""What a memory tool may raise to say no: the model reads it, and the turn continues."""


class CallRun:
    def __init__(self, state: TurnState, record: TurnWriter, pressure: MemoryPressure) -> None:
        self._state = state
        self._record = record
        self._pressure = pressure

    async def start(self, reply: Reply) -> Outcome:
        """Run the call of the model's reply, and commit the step."""
        state, name = self._state, reply.call.name
        tool = self._tool(name)
        assert tool is not None, "the reply parser has checked that it was offered"
        message = state.entry(
            state.next_position,
            "assistant",
            said(reply),
            thought=str(reply.call.arguments.get("inner_thought") or reply.text),
            call=CallRecord(reply.call, "running"),
            fields=reply.fields,
        )
        if tool.kind == "client":
            return await self._wait(message, "client")
        if state.tools.needs_approval(name):
            return await self._wait(message, "approval")
        if tool.transactional:
            return await self._run_inside(tool, message)
        running = await state.counting.entry(message)
        await self._record.begin_call(running)
        return await self._run_outside(tool, running)

    def answered(self) -> Entry | None:
        """The call of this turn that has waited and was answered, if that is why it was taken up."""
        newest = self._state.queue[-1] if self._state.queue else None
        waited = newest is not None and newest.call is not None and newest.call.state == "waiting"
        return newest if waited else None

    async def resume(self, message: Entry) -> Continue | Ended:
        """Run a call that was answered, or close it with what the answer says."""
        assert message.call is not None
        state, answer = self._state, message.call.answer or {}
        state.queue.remove(message)
        state.steps -= 1  # it was counted when it was stored
        if answer.get("cancelled"):
            ended = await state.close(message, "interrupted", CANCELLED)
            return await self._record.commit(ended, "cancelled", stored=True)
        given_up = "superseded" if answer.get("superseded") else "expired"
        if answer.get(given_up) and self._is_of_request(message):
            ended = await state.close(message, *closed_by(message.call))
            return await self._record.commit(ended, given_up, stored=True)
        if not answer.get("approved"):
            return await self._end(await state.close(message, *closed_by(message.call)))
        tool = state.tools.get(message.call.call.name)
        if tool is None or tool.kind == "client":
            return await self._end(await state.close(message, "failed", GONE))
        if tool.transactional:
            try:
                return await self._run_inside(tool, message, stored=True)
            except TurnTimeout:
                await self._interrupt(message, CUT_OFF)
                raise
        running = replace(message, call=replace(message.call, state="running"))
        await self._record.close_call(running)
        return await self._run_outside(tool, running)

    async def close_interrupted(self) -> None:
        """End the calls that a dead worker left running, so that none stands without a result."""
        state = self._state
        for index, message in enumerate(state.queue):
            if message.call is None or message.call.state == "done" or not message.call.is_open:
                continue
            waited = message.call.state == "waiting" and message.call.answer is not None
            if waited and message.position >= state.first:
                continue
            why = DIED if state.was_killed else INTERRUPTED
            closed = await state.close(message, "interrupted", why)
            await self._record.close_call(closed)
            state.queue[index] = closed
            tool = state.tools.get(message.call.call.name)
            if state.was_killed and tool is not None and tool.kind == "python":
                state.deps.deadly.add(tool.spec.name)

    async def _run_inside(
        self, tool: RunnableTool, message: Entry, *, stored: bool = False
    ) -> Continue | Ended:
        """Run a tool whose effect is our own: call, effect and result are one transaction."""
        async with LazyTransaction(self._state.deps.database, self._state.lease.tenant) as lazy:
            ended = await self._run_tool(tool, message, lazy)
            stop = await self._stop_after(ended)
            outcome = await self._record.write(await lazy.get(), ended, stop, stored=stored)
        self._record.report(ended, outcome)
        return outcome

    async def _run_outside(self, tool: RunnableTool, running: Entry) -> Continue | Ended:
        """Run a tool whose effect is not ours, which is stored as running, and commit its end."""
        state = self._state
        try:
            async with LazyTransaction(state.deps.database, state.lease.tenant) as lazy:
                ended = await self._run_tool(tool, running, lazy)
        except TurnTimeout:
            await self._interrupt(running, CUT_OFF)
            raise
        except ToolProcessEnded as error:
            logger.warning(
                "Agent %s: in turn %d the tool %s ended the process of its own that it ran in.",
                *(state.turn.agent_id, state.turn.turn, tool.spec.name),
            )
            if state.has_died:
                await self._interrupt(running, DIED)
                raise abandoned() from error
            ended = await state.close(running, "interrupted", DIED)
        return await self._end(ended)

    async def _wait(self, message: Entry, waits_for: WaitsFor) -> Outcome:
        assert message.call is not None
        record = replace(message.call, state="waiting", waits_for=waits_for)
        waiting = await self._state.counting.entry(replace(message, call=record))
        return await self._record.pause(waiting)

    async def _end(self, ended: Entry) -> Continue | Ended:
        return await self._record.commit(ended, await self._stop_after(ended), stored=True)

    async def _interrupt(self, message: Entry, why: str) -> None:
        """Commit that a call was interrupted, before the turn fails."""
        ended = await self._state.close(message, "interrupted", why)
        await self._record.commit(ended, None, stored=True)

    async def _run_tool(self, tool: RunnableTool, message: Entry, lazy: LazyTransaction) -> Entry:
        """The message with its call ended, one way or the other."""
        assert message.call is not None
        state, deps, call = self._state, self._state.deps, message.call.call
        budget = state.budget or (await state.build_prompt()).budget
        context = ToolContext(
            agent_id=state.turn.agent_id,
            tenant=state.lease.tenant,
            turn=state.turn.turn,
            call_id=call.id,
            transaction=lazy,
            database=deps.database,
            archival=deps.archival,
            recall=deps.recall,
            before=state.first,
            position=message.position,
            # An approval may come days after the call.
            now=state.now() if message.call.waits_for else message.created_at,
            zone=state.view.zone,
            reader=state.counting.reader(message, budget, can_read_on=state.can_read_on),
            alone=state.was_killed or state.has_died or tool.spec.name in deps.deadly,
        )
        start = perf_counter()
        named = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": call.name}
        async with state.deadline.cutting():
            with timed("tools"), span(f"execute_tool {call.name}", named):
                how, result, pictures = await run_call(tool, call, context, deps.limits.calls)
        deps.metrics.record(TOOL, perf_counter() - start, tool.kind, how)
        return await state.close(replace(message, pictures=pictures), how, result)

    async def _stop_after(self, ended: Entry) -> str | None:
        """Why the turn ends after this step; None if another one follows, be it the alert's."""
        return await self._pressure.decide(ended, self._stop_reason(ended))

    def _stop_reason(self, ended: Entry) -> str | None:
        """The same, apart from the alert's steps."""
        assert ended.call is not None
        state, call = self._state, ended.call.call
        done, last = ended.call.state == "done", state.is_last_step
        missing = state.tools.count(call.name, done=done)
        sent = is_sent(ended)
        state.replied = state.replied or sent
        if state.is_saving:
            return self._pressure.stop_after_saving(ended)
        wants_more = call.arguments.get("request_heartbeat") is True or self._is_of_request(ended)
        if sent and (last or not wants_more):
            return "message_sent"
        if done and state.tools.is_terminal(call.name) and not missing:
            return "terminal_tool"
        if last:
            return "max_steps"
        if missing or not done or wants_more or state.must_still_reply:
            return None
        return "message_sent" if state.replied else "no_heartbeat"

    def _is_of_request(self, message: Entry) -> bool:
        return message.call is not None and message.call.call.name in self._state.request.names

    def _tool(self, name: str) -> RunnableTool | None:
        state = self._state
        idle = NOTHING_TO_SAVE if state.is_saving else NOTHING_TO_DO if state.of_event else None
        return idle if idle and name == idle.spec.name else state.tools.get(name)


async def run_call(
    tool: RunnableTool, call: FunctionCall, context: ToolContext, limits: CallLimits
) -> tuple[Literal["done", "failed"], str, tuple[Picture, ...]]:
    """Run a call; a refused one of a transactional tool leaves no trace in the database.

    Returns:
        How the call ended, its result or the reason, and the pictures that it shows.
    """
    arguments = {name: value for name, value in call.arguments.items() if name not in RESERVED}
    try:
        if tool.transactional:
            return "done", str(await tool.run(context, **arguments)), ()
        work = partial(tool.run, context, **arguments)
        result = await run_contained(tool.spec.name, work, tool.timeout or limits.seconds)
        if not result.pictures:
            return "done", cut(result.text, limits.characters), ()
        text, pictures = await asyncio.to_thread(take, result, limits.pictures)
        return "done", cut(text, limits.characters), pictures
    except REFUSALS as error:
        await context.transaction.roll_back()
        return "failed", cut(error.message, limits.characters), ()
