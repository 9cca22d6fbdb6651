"""Memory pressure: room for the next prompt, and the alert before what is oldest moves out of sight.

The alert has steps of its own after the answer, in which the agent saves what it will need (MemGPT's memory
pressure is an event with an inference of its own). The person has the answer already, and no step of these can
say anything to them.
"""

from memserver.agent.compaction import check_room, evict
from memserver.agent.context import PromptParts
from memserver.agent.turn_state import TurnState
from memserver.errors import ContextOverflow
from memserver.messages import Entry, ToolSpec
from memserver.tools.tool import idle_tool

MOST_SHRUNK = 3
"""Prompts refused as too long after which the turn fails."""
WRITING = frozenset({"working_context_append", "working_context_replace", "archival_memory_insert"})
DONE = frozenset({"message_sent", "terminal_tool", "no_heartbeat"})
"""Why a turn ends that has done what it was for."""
NOTHING_TO_SAVE = idle_tool("nothing_to_save", "Say that nothing has to be saved.")


class MemoryPressure:
    def __init__(self, state: TurnState) -> None:
        self._state = state
        self._shrunk = 0

    async def make_room(self) -> PromptParts:
        """The prompt's parts, after as many evictions as it takes for the queue to fit."""
        state = self._state
        prompt = await state.build_prompt()
        check_room(prompt.budget)
        while not prompt.budget.fits(state.queue) and len(state.evictable) > 1:
            await self._evict(prompt)
            prompt = await state.build_prompt()
            check_room(prompt.budget)
        state.budget = prompt.budget
        return prompt

    async def shrink(self, prompt: PromptParts, error: ContextOverflow) -> None:
        """The endpoint says that the prompt is too long, though it fits by our count: evict.

        From then on more is counted, so that a single long message is shown shorter; unless the window is
        smaller than it was thought to be, which the next prompt then fits.

        Raises:
            ContextOverflow: that was done in this turn often enough.
        """
        state = self._state
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
        await state.counting.learn_overflow(prompt, state.queue, state.view.tools)
        if len(state.evictable) > 1:
            await self._evict(prompt)

    async def decide(self, ended: Entry, stop: str | None) -> str | None:
        """Why the turn ends after this step; None if another one follows, be it the alert's."""
        state, budget = self._state, self._state.budget
        if stop is None or state.warned or state.is_saving or budget is None:
            return stop
        queue = [*state.queue, ended]
        # There has to be something older than this turn, and a step to save it in.
        if not budget.under_pressure(queue) or queue[0].position >= state.first:
            return stop
        if not self._alerts or not self.tools_to_save_by():
            state.warned = True  # it can't save anything, so there is nothing to say
            return stop
        if state.is_last_step or stop not in DONE:
            state.warned = budget.over_target(queue)  # too late: room is made all the same
            return stop
        percent = 100 * budget.used(queue) // budget.capacity
        text = state.deps.prompts.render("pressure_alert.md", percent=percent)
        alert = state.entry(ended.position + 1, "system", text)
        state.begin_saving(stop, await state.counting.entry(alert))
        return None

    def stop_after_saving(self, ended: Entry) -> str | None:
        """Why the turn ends after one of the alert's steps; None: another one follows."""
        assert ended.call is not None
        wants_more = ended.call.call.arguments.get("request_heartbeat") is True
        again = wants_more or ended.call.state != "done"
        return None if again and not self._state.is_last_step else self._state.pending_stop

    def tools_to_save_by(self) -> tuple[ToolSpec, ...]:
        """What an alert's step offers; nothing where the agent can't save by itself."""
        tools = self._state.tools
        writing = tuple(
            spec
            for spec in tools.callable(self._state.view.tools, last=False)
            if spec.name in WRITING and not tools.needs_approval(spec.name)
        )
        return (*writing, NOTHING_TO_SAVE.spec) if writing else ()

    @property
    def _alerts(self) -> bool:
        own = self._state.view.options.pressure_alert
        return self._state.deps.limits.pressure_alert if own is None else own

    async def _evict(self, prompt: PromptParts) -> None:
        state = self._state
        compacted = await evict(
            state.deps, state.view, state.evictable, prompt.budget, state.deadline, state.lease
        )
        if compacted is not None:
            state.publish(compacted)
        await state.refresh()
