"""One turn: the step loop from a message to its answer.

Each step asks the model for one tool call, runs it (`call_run`), and commits call, effect and result together
(`turn_record`). What was committed stands: a turn taken up again after a crash resumes after its last step. A call
that needs a person's approval, or the caller to run it, pauses the turn; the answer takes it up again. Under memory
pressure the alert's steps follow the answer (`pressure`).
"""

import logging

from memserver.agent.auto_recall import recall_first
from memserver.agent.call_run import NOTHING_TO_DO, CallRun
from memserver.agent.context import PromptParts, render_queue
from memserver.agent.deadline import Deadline
from memserver.agent.dependencies import TurnDependencies
from memserver.agent.pictures import with_pictures
from memserver.agent.pressure import MemoryPressure
from memserver.agent.reply_modes import InvalidReplies, ask_for_step, complaint, with_json_message
from memserver.agent.turn_record import Continue, Ended, Outcome, Paused, TurnWriter
from memserver.agent.turn_state import TurnState
from memserver.errors import (
    ContextOverflow,
    DatabaseError,
    MemserverError,
    ModelRefused,
    ProtocolViolation,
)
from memserver.llm.base import Reply
from memserver.messages import Entry, ToolSpec
from memserver.metering import meter, timed
from memserver.openai_http.fleet import pinned_to
from memserver.storage.leases import ClaimedTurn
from memserver.tools.memory_tools import SEND_MESSAGE
from memserver.wire.events import TurnStarted

logger = logging.getLogger(__name__)


class TurnRun:
    def __init__(self, deps: TurnDependencies, claimed: ClaimedTurn, queue: list[Entry]) -> None:
        # An import asks for no answer that somebody waits for, and its work grows with its size.
        self._imports = claimed.turn.kind == "import"
        deadline = Deadline(None if self._imports else deps.limits.turn_timeout)
        self._state = TurnState(deps, claimed, queue, deadline)
        self._record = TurnWriter(self._state)
        self._pressure = MemoryPressure(self._state)
        self._calls = CallRun(self._state, self._record, self._pressure)
        self._invalid = InvalidReplies(in_form=self._state.request.form is not None)

    async def run(self) -> Paused | Ended:
        """Work the turn to its end, or until it waits for an answer.

        Raises:
            LeaseLost: another worker took over; nothing more may be done here.
            DatabaseError: the database failed; the turn stays and is taken up again.
        """
        self._state.publish(TurnStarted(turn=self._state.turn.turn))
        token = meter.set(self._state.meter)
        try:
            with pinned_to(self._state.turn.agent_id):
                return await self._work()
        except DatabaseError:  # a lost lease among them
            raise
        except MemserverError as error:
            return await self._fail(error)
        finally:
            meter.reset(token)

    async def _work(self) -> Paused | Ended:
        state = self._state
        await self._calls.close_interrupted()
        if self._imports:
            await self._pressure.make_room()
            return await self._record.end("imported")
        if state.tools.are_own:
            await self._know_tools()
        answered = self._calls.answered()
        if answered is not None:
            match await self._calls.resume(answered):
                case Ended() as ended:
                    return ended
                case Continue():
                    await state.refresh()
        await recall_first(state, self._record, self._pressure)
        while True:
            match await self._step():
                case Continue():
                    await state.refresh()
                case outcome:
                    return outcome

    async def _know_tools(self) -> None:
        """What the agent's own choice of tools needs: the tools, and what was called so far."""
        state = self._state
        async with state.deadline.cutting():
            await state.tools.wait()
        state.view = state.view.renewed(state.view.snapshot, state.tools)
        await state.tools.recount(state.deps.database, state.lease, state.evictable, state.first)

    async def _step(self) -> Outcome:
        try:
            while True:
                with timed("memory"):
                    prompt = await self._pressure.make_room()
                try:
                    reply = await self._ask(prompt)
                    break
                except ContextOverflow as error:
                    await self._pressure.shrink(prompt, error)
        except ProtocolViolation as error:
            return await self._note_violation(error)
        self._invalid.reset()
        return await self._calls.start(reply)

    async def _ask(self, prompt: PromptParts) -> Reply:
        state, turn, budget = self._state, self._state.turn, prompt.budget
        tools = self._offered()
        streams = (
            not state.is_saving
            and state.request.form is None
            and state.deps.events.wants_text(turn.agent_id, turn.turn)
        )
        async with state.deadline.cutting():
            largest = budget.largest_counted
            rendered = await render_queue(state.view, state.queue, largest, state.model)
            queue = await with_pictures(state.deps.database, state.lease.tenant, rendered)
            state.meter.parts = prompt.tokens(state.queue)
            try:
                with timed("model"):
                    reply = await ask_for_step(
                        state.model,
                        state.view.options.reply_mode,
                        (prompt.messages(queue), tools),
                        max_tokens=budget.output(state.queue),
                        on_text=state.text_sink() if streams else None,
                    )
            except ProtocolViolation as error:
                reply = self._invalid.as_answer(error, tools, last=state.is_last_step)
        if state.request.form is not None:
            reply = with_json_message(reply)
        state.add_usage(reply.usage)
        await state.counting.learn(prompt, state.queue, tools, reply.usage)
        state.budget = budget.with_scale(state.counting.factor)
        return reply

    def _offered(self) -> tuple[ToolSpec, ...]:
        state = self._state
        if state.is_saving:
            return self._pressure.tools_to_save_by()
        must_reply = state.must_still_reply and not state.tools.must_call
        if state.is_last_step and must_reply:
            return tuple(spec for spec in state.view.tools if spec.name == SEND_MESSAGE)
        calls = state.tools.callable(state.view.tools, last=state.is_last_step)
        return (*calls, NOTHING_TO_DO.spec) if state.of_event and calls else calls

    async def _note_violation(self, error: ProtocolViolation) -> Outcome:
        """Feed an invalid reply back to the model; after too many of them the turn fails."""
        state, mode = self._state, self._state.view.options.reply_mode
        state.add_usage(error.usage)
        logger.info("Invalid reply: %s It began: %.200s", error.complaint, error.raw)
        self._invalid.add(error, mode)
        text = complaint(state.deps.prompts, error, mode)
        note = state.entry(state.next_position, "system", text)
        stop = (state.pending_stop or "max_steps") if state.is_last_step else None
        return await self._record.commit(await state.counting.entry(note), stop)

    async def _fail(self, error: MemserverError) -> Ended:
        """End the turn with an error; where it was answered, as it would have ended without the alert."""
        state = self._state
        if isinstance(error, ModelRefused):
            state.add_usage(error.usage)
        if state.pending_stop is None or state.alert is not None:
            return await self._record.end("error", error)
        turn = state.turn
        logger.warning(
            "Agent %s: nothing was saved after turn %d: %s", turn.agent_id, turn.turn, error
        )
        return await self._record.end(state.pending_stop)
