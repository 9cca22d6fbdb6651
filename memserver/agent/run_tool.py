"""Runs one tool call to its end. Whatever a tool does, the answer is a state and a text for the model."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

from memserver.errors import EmbeddingError, InvalidInput, NotFound, ToolError
from memserver.messages import RESERVED, ToolCall
from memserver.tools.foreign import contained, cut
from memserver.tools.registry import Tool, ToolContext

REFUSALS = (ToolError, InvalidInput, NotFound, EmbeddingError)
"""What a memory tool may raise to say no: the model reads it, and the turn goes on."""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """What a call that isn't ours may take.

    Attributes:
        seconds: how long, unless the tool says otherwise.
        characters: of its result.
    """

    seconds: float = 60
    characters: int = 20_000


async def run_call(
    tool: Tool, call: ToolCall, context: ToolContext, limits: CallLimits
) -> tuple[Literal["done", "failed"], str]:
    """Run a call; a refused one of a transactional tool leaves no trace in the database.

    Returns:
        How the call ended, and its result or the reason.
    """
    arguments = {name: value for name, value in call.arguments.items() if name not in RESERVED}
    try:
        if tool.transactional:
            return "done", str(await tool.run(context, **arguments))
        work = partial(tool.run, context, **arguments)
        result = await contained(tool.spec.name, work, tool.timeout or limits.seconds)
        return "done", cut(result, limits.characters)
    except REFUSALS as error:
        await context.transaction.roll_back()
        return "failed", cut(error.message, limits.characters)
