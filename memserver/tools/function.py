"""Python functions as tools: what the author of one writes.

    from memserver.tools.function import AgentContext, ToolPicture, tool

    @tool
    def roll(sides: int, context: AgentContext) -> int:
        \"\"\"Roll a die.

Args:
            sides: how many it has.
        \"\"\"

A decorated function stays what it was. What is wrong with it is an error when its module is imported.
"""

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar, overload
from uuid import UUID

from memserver.errors import ToolError
from memserver.messages import ToolSpec
from memserver.tools import own_process
from memserver.tools.agent_memory import AgentMemory
from memserver.tools.foreign import in_thread
from memserver.tools.shown import ToolPicture
from memserver.tools.signature import Signature, place_of, read_signature
from memserver.tools.tool import RunnableTool, ToolContext, call_schema

__all__ = ["AgentContext", "ToolPicture", "tool"]
MARK = "__memserver_tool__"

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class AgentContext:
    """What a function can know of its call: a parameter of this type is filled in, and hidden from the model.

    Attributes:
        agent_id: whose call it is.
        tenant: to whom the agent belongs.
        turn: the number of the agent's turn.
        call_id: identifies the call.
        now: the time of the call.
        memory: the agent's memory; its methods are coroutines.
    """

    agent_id: UUID
    tenant: str
    turn: int
    call_id: str
    now: datetime
    memory: AgentMemory
    _loop: asyncio.AbstractEventLoop
    _thread: int

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """What a coroutine returns, for a sync function: `context.wait(context.memory.sections())`.

        Raises:
            ToolError: an async function has called it, which has to await instead.
        """
        if threading.get_ident() == self._thread:
            work.close()
            raise ToolError("An async function must await the memory's methods, not wait for them.")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A function with what the decorator made of it; `place` is its file and line."""

    tool: RunnableTool
    place: str
    signature: Signature


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *, name: str | None = None, timeout: float | None = None, attached: bool = False
) -> Callable[[F], F]: ...
def tool(
    function: F | None = None,
    /,
    *,
    name: str | None = None,
    timeout: float | None = None,
    attached: bool = False,
) -> F | Callable[[F], F]:
    """Make a tool of a function, sync or async.

    The model is shown its name, its docstring, its typed parameters, and what a docstring in the style of
    Google, NumPy or Sphinx says of each. A sync function runs in a thread. It returns text, anything that is JSON, or pictures; raising
    is a failed call, whose message the model reads.

    Args:
        function: where the decorator is used without arguments.
        name: instead of the function's.
        timeout: seconds that a call may take; None: the server's MEMSERVER_TOOL_TIMEOUT.
        attached: every agent has it that doesn't detach it; else those that attach it.

    Raises:
        SetupError: the function can't be a tool; the message names file and line.
    """

    def decorate(decorated: F) -> F:
        signature = read_signature(decorated, name=name, context=AgentContext)
        spec = ToolSpec(signature.name, signature.description, call_schema(signature.schema))
        made = RunnableTool(
            spec, partial(_call, decorated, signature), attached=attached, timeout=timeout
        )
        setattr(decorated, MARK, FunctionTool(made, place_of(decorated), signature))
        return decorated

    return decorate if function is None else decorate(function)


async def call(
    function: Callable[..., Any],
    signature: Signature,
    arguments: Mapping[str, Any],
    context: AgentContext,
) -> object:
    """Call a function; returns what it returns.

    Raises:
        ToolError: the arguments don't fit.
    """
    values = signature.values(arguments)
    if signature.injected is not None:
        values[signature.injected] = context
    if inspect.iscoroutinefunction(function):
        result: object = await function(**values)
        return result
    result = await in_thread(partial(function, **values))
    return await result if isinstance(result, Awaitable) else result


async def _call(
    function: Callable[..., Any],
    signature: Signature,
    context: ToolContext,
    /,
    **arguments: Any,  # noqa: ANN401 - JSON
) -> object:
    memory = AgentMemory(
        context.agent_id,
        context.tenant,
        context.database,
        context.archival,
        context.recall,
        context.before,
    )
    facts: dict[str, Any] = {
        name: getattr(context, name) for name in ("agent_id", "tenant", "turn", "call_id", "now")
    }
    place = own_process.importable_name(function) if context.alone else None
    if place is not None:
        return await own_process.run(place, arguments, facts, memory)
    here: dict[str, Any] = {"_loop": asyncio.get_running_loop(), "_thread": threading.get_ident()}
    return await call(function, signature, arguments, AgentContext(**facts, **here, memory=memory))
