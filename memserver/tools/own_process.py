"""Runs a Python function in a process of its own: should that end, nothing ends with it.

For a turn whose process died before. The process gets the server's environment, and finds the function by its module
and name; what it asks of the agent's memory is done here. Both ends run the same code of the same people, so they
speak in pickles.
"""

import asyncio
import os
import pickle
import signal
import struct
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from memserver.errors import MemserverError, ToolError, ToolProcessEnded
from memserver.tools.agent_memory import AgentMemory

LENGTH = struct.Struct("!I")


def importable_name(function: Callable[..., Any]) -> tuple[str, str] | None:
    """By which module and name another process finds a function; None: it doesn't."""
    module, name = function.__module__, function.__qualname__
    found: object = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return (module, name) if found is function and module != "__main__" else None


async def run(
    place: tuple[str, str],
    arguments: Mapping[str, Any],
    facts: Mapping[str, Any],
    memory: AgentMemory,
) -> object:
    """What a function, at a place as `importable_name` says it, returns, as text and pictures.

    Raises:
        ToolError: it failed.
        ToolProcessEnded: its process ended without an answer.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-P", "-m", "memserver.tools.own_process_worker"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},  # noqa: TID251
        start_new_session=True,  # what it does to its group it does to itself
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        await _send(process.stdin, (place, dict(arguments), dict(facts)))
        while True:
            kind, *said = await _receive(process.stdout)
            if kind == "done":
                return said[0]
            if kind == "failed":
                raise ToolError(said[0])
            await _send(process.stdin, await _answer(memory, *said))
    except (EOFError, OSError) as error:
        raise ToolProcessEnded("Its process ended while it ran.") from error
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _answer(
    memory: AgentMemory, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[bool, object]:
    """What a method of the memory returns, or raises."""
    try:
        return True, await getattr(memory, method)(*args, **kwargs)
    except MemserverError as error:
        return False, error


async def _send(stream: asyncio.StreamWriter, value: object) -> None:
    content = pickle.dumps(value)
    stream.write(LENGTH.pack(len(content)) + content)
    await stream.drain()


async def _receive(stream: asyncio.StreamReader) -> tuple[Any, ...]:
    [length] = LENGTH.unpack(await stream.readexactly(LENGTH.size))
    received: tuple[Any, ...] = pickle.loads(await stream.readexactly(length))
    return received
