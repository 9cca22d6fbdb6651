"""The tool by which an agent sets a timer for itself; only agents that attach it have it."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from memserver.memory.dates import parse_range
from memserver.memory.timers import set_timer
from memserver.tools.tool import RunnableTool, ToolContext, make_tool


async def schedule_message(
    context: ToolContext,
    at: Annotated[str, Field(description="Such as 2026-02-07T18:30.", max_length=40)],
    text: Annotated[str, Field(description="What to be reminded of.", max_length=2000)],
) -> str:
    """Be reminded of something at a time to come: the text comes back then as an event."""
    due, _ = parse_range(at, at, context.now, context.zone)
    tx = await context.transaction.get()
    await set_timer(tx, context.tenant, context.agent_id, text=text, due=due, now=context.now)
    return f"Set for {due.astimezone(context.zone).isoformat()}."


def schedule_tool() -> RunnableTool:
    return replace(make_tool(schedule_message, transactional=True, kind="memory"), attached=False)
