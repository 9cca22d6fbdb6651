"""A tool that is called once outside of any turn, to try it: as an agent would call it, and with nothing stored."""

import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal
from uuid import UUID
from zoneinfo import ZoneInfo

from memserver.agent.call_run import run_call
from memserver.agent.dependencies import TurnDependencies
from memserver.agent.options import CallLimits
from memserver.errors import InvalidInput, ProtocolViolation, ToolProcessEnded
from memserver.llm.tool_arguments import check_arguments
from memserver.memory.results import ResultReader
from memserver.messages import FunctionCall, JsonObject, Picture
from memserver.storage.database import LazyTransaction
from memserver.tools.tool import RunnableTool, ToolContext
from memserver.wire.tools import ToolTrial

NOBODY = UUID(int=0)
"""The agent of a trial that names none."""
PROCESS_SECONDS = 30
"""What the start of a Python function's process may take, beside its own time."""
AT_ONCE = 8
"""Trials of a server process: each of a Python function has a process of its own."""
_running = threading.BoundedSemaphore(AT_ONCE)
_AFTER_ALL = 2**62
"""A position after every message."""
_NO_READER = ResultReader(window=0, count=lambda _: _refuse())
"""Only memory tools, which can't be tried, lay their results out for a model."""


async def try_tool(
    deps: TurnDependencies,
    tool: RunnableTool,
    arguments: Mapping[str, Any],
    tenant: str,
    agent_id: UUID | None,
) -> ToolTrial:
    """Call a tool with a model's arguments, in the limits of a turn's call; a Python function in a process of its own.

    A function has the id and memory of `agent_id`, and a webhook is sent it; None: nobody's.

    Raises:
        InvalidInput: the tool acts only in a turn, or its schema is broken.
    """
    name = tool.spec.name
    if tool.kind in {"memory", "client"}:
        why = "the caller runs it" if tool.kind == "client" else "it acts on an agent in a turn"
        raise InvalidInput(
            f"{name} can't be tried: {why}.",
            hint="Python functions, webhooks and tools of MCP servers can.",
        )
    start = time.monotonic()
    try:
        fitted = check_arguments(tool.spec, dict(arguments))
    except ProtocolViolation as error:
        return ToolTrial(state="refused", result=error.message, arguments=dict(arguments))
    if not _running.acquire(blocking=False):
        busy = f"{AT_ONCE} tools are being tried already. Try later."
        return ToolTrial(state="failed", result=busy, arguments=fitted)
    try:
        async with LazyTransaction(deps.database, tenant) as lazy:
            context = _context(deps, lazy, tenant, agent_id or NOBODY)
            state, result, pictures = await _call(tool, fitted, context, deps.limits.calls)
    finally:
        _running.release()
    return ToolTrial(
        state=state,
        result=result,
        pictures=len(pictures),
        arguments=fitted,
        seconds=round(time.monotonic() - start, 3),
    )


async def _call(
    tool: RunnableTool, arguments: JsonObject, context: ToolContext, limits: CallLimits
) -> tuple[Literal["done", "failed"], str, tuple[Picture, ...]]:
    if tool.kind == "python":
        tool = replace(tool, timeout=(tool.timeout or limits.seconds) + PROCESS_SECONDS)
    try:
        call = FunctionCall(context.call_id, tool.spec.name, arguments)
        return await run_call(tool, call, context, limits)
    except ToolProcessEnded as error:
        return "failed", error.message, ()


def _context(
    deps: TurnDependencies, lazy: LazyTransaction, tenant: str, agent_id: UUID
) -> ToolContext:
    return ToolContext(
        agent_id=agent_id,
        tenant=tenant,
        turn=0,
        call_id=f"try{secrets.token_hex(3)}",
        transaction=lazy,
        database=deps.database,
        archival=deps.archival,
        recall=deps.recall,
        before=_AFTER_ALL,
        position=_AFTER_ALL,
        now=deps.clock(),
        zone=ZoneInfo("UTC"),
        reader=_NO_READER,
        alone=True,
    )


async def _refuse() -> list[int]:
    raise AssertionError("a memory tool was tried")
