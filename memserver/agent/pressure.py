"""The pressure alert has steps of its own after the answer, in which the agent saves what it will need.

Only then is the oldest part of the queue moved out of sight (MemGPT's memory pressure is an event with an
inference of its own). The person has the answer already, and no step of these can say anything to them.
"""

from collections.abc import Iterable

from memserver.messages import Message, ToolSpec
from memserver.tools.registry import Toolset, idle_tool

MOST_STEPS = 5
"""Steps that one alert leads to."""
WRITING = frozenset({"working_context_append", "working_context_replace", "archival_memory_insert"})
ENDS_IT_FOLLOWS = frozenset({"message_sent", "terminal_tool", "no_heartbeat"})
"""Why a turn ends that has done what it was for."""


NOTHING_TO_SAVE = idle_tool("nothing_to_save", "Say that nothing has to be saved.")


class PressureSteps:
    """The alert's steps of one turn: whether they run, and how many there may be."""

    def __init__(self, stop_reason: str | None, steps: int) -> None:
        """Make them.

        Args:
            stop_reason: with which the turn ends after them, where they run already, else None.
            steps: that the turn has made.
        """
        self.stop_reason = stop_reason
        self._first = steps

    @property
    def run(self) -> bool:
        """Whether the turn has done what it was for, and the alert's steps follow."""
        return self.stop_reason is not None

    def begin(self, stop_reason: str, steps: int) -> None:
        """They follow after so many steps; the turn will end with this reason."""
        self.stop_reason, self._first = stop_reason, steps

    def none_after(self, steps: int) -> bool:
        """Whether the step after so many is the last one that they may make."""
        return self.run and steps + 1 - self._first >= MOST_STEPS

    def next_stop(self, ended: Message, *, last: bool) -> str | None:
        """Why the turn ends after one of these steps; None: another one follows."""
        assert ended.call is not None
        asked_for = ended.call.call.arguments.get("request_heartbeat") is True
        return None if (asked_for or ended.call.state != "done") and not last else self.stop_reason


def tools_to_save_by(toolset: Toolset, specs: Iterable[ToolSpec]) -> tuple[ToolSpec, ...]:
    """Of what may be called, what an alert's step offers; nothing where the agent can't save by itself."""
    writing = tuple(
        spec for spec in specs if spec.name in WRITING and not toolset.rule(spec.name).approval
    )
    return (*writing, NOTHING_TO_SAVE.spec) if writing else ()
