"""What the agent of a turn may call now: its tools, its rules, and what the turn has called so far."""

from collections.abc import Sequence

from memserver.agent.auto_recall import is_automatic
from memserver.messages import Message
from memserver.storage import calls
from memserver.storage.database import Database
from memserver.storage.leases import Lease
from memserver.storage.tools import Grant
from memserver.tools.memory_tools import SEND_MESSAGE
from memserver.tools.registry import Calls, Toolset
from memserver.tools.toolbox import Toolbox


class ToolChoice:
    """The tools of one agent during one turn."""

    def __init__(self, toolbox: Toolbox, grants: tuple[Grant, ...]) -> None:
        self._toolbox = toolbox
        self._grants = grants
        self._calls = Calls()
        self.tools: Toolset = toolbox.toolset(grants)

    @property
    def is_own(self) -> bool:
        """Whether the agent has said anything of its tools."""
        return bool(self._grants)

    async def wait_for_tools(self) -> None:
        """Wait, not long, for tools that are listed only after the server's start."""
        await self._toolbox.ready(self._grants)
        self.tools = self._toolbox.toolset(self._grants)

    async def recount(
        self, database: Database, lease: Lease, queue: Sequence[Message], first: int
    ) -> None:
        """Count the calls that the turn has made already, where rules count them.

        Args:
            database: asked for what has left the queue.
            lease: on the agent.
            queue: as it is now, from the agent's queue start on.
            first: position of the turn's first message.
        """
        if not self.tools.ruled:
            return
        known = [
            (message.call.call.name, message.call.state == "done")
            for message in queue
            if message.position >= first
            and message.call
            and not (message.call.is_open or is_automatic(message.call))
        ]
        start = queue[0].position if queue else first
        if start > first:
            async with database.tenant(lease.tenant) as tx:
                known += await calls.made_in(tx, lease.agent_id, first, start)
        for name, done in known:
            self._calls.add(name, done=done)

    def renew(self, grants: tuple[Grant, ...]) -> bool:
        """Take what the agent says now; returns whether that is anything else."""
        if grants == self._grants:
            return False
        self._grants = grants
        self.tools = self._toolbox.toolset(grants)
        return True

    def offered(self) -> frozenset[str] | None:
        """The names of what may be called now; None: all that there is."""
        return self.tools.offered(self._calls, SEND_MESSAGE) if self.tools.ruled else None

    def ended(self, name: str, *, done: bool) -> bool:
        """Count a call that has ended; returns whether the turn has to go on for what is required."""
        self._calls.add(name, done=done)
        return bool(self.tools.missing(self._calls))
