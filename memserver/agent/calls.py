"""Runs one tool call to its end. Whatever a tool does, the answer is a state and a text for the model."""

import logging
from typing import Literal

from memserver.errors import EmbeddingError, InvalidInput, NotFound, ToolError
from memserver.memory.text import clean
from memserver.messages import JsonObject, ToolCall
from memserver.tools.registry import RESERVED, Tool, ToolContext

logger = logging.getLogger(__name__)

REFUSALS = (ToolError, InvalidInput, NotFound, EmbeddingError)
"""What a tool may raise to say no: the model reads it, and the turn goes on."""
RESULT_CHARACTERS = 20_000


async def run_call(
    tool: Tool, call: ToolCall, context: ToolContext
) -> tuple[Literal["done", "failed"], str]:
    """Run a call; a refused one leaves no trace in the database.

    Returns:
        How the call ended, and its result or the reason.
    """
    arguments = {name: value for name, value in call.arguments.items() if name not in RESERVED}
    try:
        if tool.transactional:
            return "done", await tool.run(context, **arguments)
        return "done", await _run_foreign(tool, context, arguments)
    except REFUSALS as error:
        await context.transaction.roll_back()
        return "failed", error.message


async def _run_foreign(tool: Tool, context: ToolContext, arguments: JsonObject) -> str:
    """Somebody else's code: anything it raises is a refusal, and its result is cut to a limit."""
    try:
        result = clean(str(await tool.run(context, **arguments)))
    except REFUSALS:
        raise
    except Exception as error:
        logger.warning("The tool %s failed.", tool.spec.name, exc_info=True)
        raise ToolError(f"{type(error).__name__}: {error}") from error
    if len(result) > RESULT_CHARACTERS:
        return f"{result[:RESULT_CHARACTERS]}… [cut: {len(result)} characters in all]"
    return result
