"""Events beside messages: somebody has logged in, a file has come, a timer has gone off.

An event begins a turn as a message does, but nobody waits for an answer: the agent may say or do something,
or leave it.
"""

from collections.abc import Sequence

from memserver.messages import Message
from memserver.tools.registry import idle_tool

NOTHING_TO_DO = idle_tool("nothing_to_do", "Leave it at that: nothing has to be said or done.")


def began_with_event(queue: Sequence[Message], first: int) -> bool:
    """Whether the turn whose messages start at this position began with an event."""
    return any(each.position == first and each.role == "system" for each in queue)
