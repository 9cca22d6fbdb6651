"""What the agent of a turn may call now: its tools, its rules, and what the turn has called so far."""

from collections.abc import Sequence

from memserver.messages import Message, ToolSpec
from memserver.storage import calls
from memserver.storage.database import Database
from memserver.storage.leases import Lease
from memserver.storage.tools import Grant
from memserver.tools.memory_tools import SEND_MESSAGE
from memserver.tools.registry import Calls, Toolset
from memserver.tools.toolbox import Toolbox
from memserver.tools.turn_request import TurnRequest


class TurnTools:
    def __init__(self, toolbox: Toolbox, grants: tuple[Grant, ...], request: TurnRequest) -> None:
        self._toolbox = toolbox
        self._grants = grants
        self._request = request
        self._calls = Calls()
        self.toolset = self._put_together()

    @property
    def are_own(self) -> bool:
        """Whether the agent has said anything of its tools."""
        return bool(self._grants)

    async def wait(self) -> None:
        """Wait, not long, for tools that are listed only after the server's start."""
        await self._toolbox.ready(self._grants)
        self.toolset = self._put_together()

    async def recount(
        self, database: Database, lease: Lease, queue: Sequence[Message], first: int
    ) -> None:
        """Count the calls that the turn has made already, where rules count them.

        Args:
            database: has what has left the queue.
            lease: on the agent.
            queue: as it is now, from the agent's queue start on.
            first: position of the turn's first message.
        """
        if not self.toolset.ruled:
            return
        known = [
            (message.call.call.name, message.call.state == "done")
            for message in queue
            if message.position >= first
            and message.call
            and not (message.call.is_open or calls.is_automatic(message.call))
        ]
        start = queue[0].position if queue else first
        if start > first:
            async with database.tenant(lease.tenant) as tx:
                known += await calls.made_in(tx, lease.agent_id, first, start)
        for name, done in known:
            self._calls.add(name, done=done)

    def renew(self, grants: tuple[Grant, ...]) -> None:
        """Take what the agent says now."""
        if grants != self._grants:
            self._grants = grants
            self.toolset = self._put_together()

    @property
    def must_call(self) -> bool:
        """Whether the client wants a call of one of its own tools, and no message."""
        return self._request.choice != "auto"

    def callable(self, specs: tuple[ToolSpec, ...], *, last: bool) -> tuple[ToolSpec, ...]:
        """Those that may be called in a step, which may be the last one."""
        if not (self.toolset.ruled or self.must_call):
            return specs
        names = self.toolset.offered(self._calls, SEND_MESSAGE)
        if self.must_call:
            names = self._request.offered(names, last=last)
        return tuple(spec for spec in specs if spec.name in names)

    def count(self, name: str, *, done: bool) -> bool:
        """Count a call that has ended; returns whether another one is still required in this turn."""
        self._calls.add(name, done=done)
        return bool(self.toolset.missing(self._calls))

    def _put_together(self) -> Toolset:
        return self._request.add_to(self._toolbox.toolset(self._grants), self._toolbox.style)
