"""Tools that end their process, each in its way, and one that says which process it runs in."""

import os
import signal

from memserver.errors import NotFound
from memserver.tools.function import AgentContext, tool


@tool(attached=True)
async def leave() -> str:
    """End the process, as a broken C library does."""
    os._exit(1)


@tool(attached=True)
def be_killed() -> str:
    """End the process as the kernel does when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


@tool(attached=True)
def be_asked_to_end() -> str:
    """Get what a service manager sends to all processes of a service."""
    os.kill(os.getpid(), signal.SIGTERM)
    return "alive"


@tool(attached=True)
def fail() -> str:
    """Raise."""
    raise ValueError("no")


@tool(attached=True)
def look_around(word: str, context: AgentContext) -> dict[str, object]:
    """Use the memory.

    Args:
        word: to remember.
    """
    section = context.wait(context.memory.sections())[0].name
    print("printed by a tool")  # noqa: T201 - it must not disturb the answer
    text = context.wait(context.memory.append(section, word))
    try:
        context.wait(context.memory.append("nowhere", word))
    except NotFound as error:
        return {"text": text, "error": error.message, "pid": os.getpid()}
    return {}
