"""What the agent of a turn may call now: its tools, its rules, and what the turn has called so far."""

from collections import Counter
from collections.abc import Sequence

from memserver.messages import Entry, MemorySection, ToolSpec
from memserver.storage import calls
from memserver.storage.database import Database
from memserver.storage.leases import Lease
from memserver.storage.tools import Grant
from memserver.tools.memory_tools import SEND_MESSAGE
from memserver.tools.registry import ToolRegistry
from memserver.tools.tool import RunnableTool, describe
from memserver.tools.turn_request import NO_REQUEST, TurnRequest


class TurnTools:
    """The tools in the order in which the model sees them. All rules count in each turn again."""

    def __init__(
        self, registry: ToolRegistry, grants: tuple[Grant, ...], request: TurnRequest = NO_REQUEST
    ) -> None:
        self._registry = registry
        self._request = request
        self._made: Counter[str] = Counter()
        self._succeeded: set[str] = set()
        self._take(grants)

    def _take(self, grants: tuple[Grant, ...]) -> None:
        self._grants = grants
        self._tools = self._request.add_to(self._registry.tools_of(grants), self._registry.style)
        ruled = self._tools.keys() - {tool.name for tool in self._request.tools}
        self._rules = {each.name: each for each in grants if each.has_rules and each.name in ruled}
        self._specs: dict[tuple[str, ...], tuple[ToolSpec, ...]] = {}

    @property
    def are_own(self) -> bool:
        return bool(self._grants)

    async def wait(self) -> None:
        """Wait, not long, for tools that are listed only after the server's start."""
        await self._registry.wait(self._grants)
        self._take(self._grants)

    def renew(self, grants: tuple[Grant, ...]) -> None:
        if grants != self._grants:
            self._take(grants)

    def get(self, name: str) -> RunnableTool | None:
        return self._tools.get(name)

    def needs_approval(self, name: str) -> bool:
        return name in self._rules and self._rules[name].approval

    def is_terminal(self, name: str) -> bool:
        return name in self._rules and self._rules[name].terminal

    def describe(self, sections: Sequence[MemorySection]) -> tuple[ToolSpec, ...]:
        """What the model is shown, for a working context of these sections."""
        names = tuple(section.name for section in sections)
        if not (self._grants or self._request.is_new):
            return self._registry.describe_default(names)
        if names not in self._specs:
            self._specs[names] = describe(self._tools.values(), names)
        return self._specs[names]

    async def recount(
        self, database: Database, lease: Lease, queue: Sequence[Entry], first: int
    ) -> None:
        """Count the calls that the turn has made already, where rules count them.

        `queue` is as it is now, from the agent's queue start on; the database has what has left it. `first` is the position of
        the turn's first message.
        """
        if not self._rules:
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
            self._add(name, done=done)

    @property
    def must_call(self) -> bool:
        """Whether the client wants a call of one of its own tools, and no message."""
        return self._request.choice != "auto"

    def callable(self, specs: tuple[ToolSpec, ...], *, last: bool) -> tuple[ToolSpec, ...]:
        """Those of the tools that are described which the model may call now, which may be the last step."""
        if not (self._rules or self.must_call):
            return specs
        names = self._callable_names()
        if self.must_call:
            names = self._request.offered(names, last=last)
        return tuple(spec for spec in specs if spec.name in names)

    def count(self, name: str, *, done: bool) -> bool:
        """Count a call that has ended; returns whether another one is still required in this turn."""
        self._add(name, done=done)
        return bool(self._missing())

    def _add(self, name: str, *, done: bool) -> None:
        self._made[name] += 1
        if done:
            self._succeeded.add(name)

    def _missing(self) -> set[str]:
        """Tools that have to succeed before the turn ends, and still can."""
        required = {name for name, rule in self._rules.items() if rule.required}
        return required - self._succeeded - self._spent()

    def _spent(self) -> set[str]:
        return {
            name
            for name, rule in self._rules.items()
            if rule.max_calls is not None and self._made[name] >= rule.max_calls
        }

    def _callable_names(self) -> set[str]:
        names = self._tools.keys() - self._spent()
        first = {name for name, rule in self._rules.items() if rule.first}
        if first and not self._made:
            return first & names or names
        missing = self._missing()
        if missing:
            ends = {SEND_MESSAGE, *(name for name, rule in self._rules.items() if rule.terminal)}
            names -= ends - missing if len(missing) == 1 else ends
        return names
