"""The process that runs one call of a Python function. `own_process` starts it.

What the function prints goes where the server's log goes; the answer has a pipe of its own.
"""

import asyncio
import ctypes
import importlib
import os
import pickle
import signal
import sys
import threading
from contextlib import suppress
from functools import partial
from typing import IO, Any, cast
from uuid import UUID

from memserver.errors import ToolError
from memserver.tools.agent_memory import AgentMemory
from memserver.tools.foreign import run_contained
from memserver.tools.function import MARK, AgentContext, FunctionTool, call
from memserver.tools.own_process import LENGTH

_PR_SET_PDEATHSIG = 1
_LONGEST = 86_400
"""Seconds; the server ends the process when the call's own time is over."""


class RemoteMemory:
    """The agent's memory, which the server holds: the methods of AgentMemory."""

    def __init__(self, agent_id: UUID, pipes: tuple[IO[bytes], IO[bytes]]) -> None:
        self.agent_id = agent_id
        self._pipes = pipes
        self._one_at_a_time = threading.Lock()

    def __getattr__(self, method: str) -> Any:  # noqa: ANN401 - each has its own type
        if method.startswith("_") or not hasattr(AgentMemory, method):
            raise AttributeError(method)
        return partial(self._ask, method)

    async def _ask(self, method: str, *args: Any, **kwargs: Any) -> object:  # noqa: ANN401
        return await asyncio.to_thread(self._wait_for, ("memory", method, args, kwargs))

    def _wait_for(self, question: object) -> object:
        with self._one_at_a_time:
            _send(self._pipes[1], question)
            well, answer = _receive(self._pipes[0])
        if not well:
            raise answer
        return answer


def main() -> None:
    # A service manager may tell all processes to end; the server ends this one when it is to.
    signal.signal(signal.SIGTERM, lambda *_: None)
    with suppress(AttributeError):  # macOS has none: there a hung call outlives a killed server
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    pipes = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    place, arguments, facts = _receive(pipes[0])
    memory = RemoteMemory(facts["agent_id"], pipes)
    answer = asyncio.run(_run(place, arguments, facts, memory))
    sys.stdout.flush()  # the answer is the end: the server, which has it, ends this process
    _send(pipes[1], answer)
    os._exit(0)  # a thread of the function's may run still


async def _run(
    place: tuple[str, str], arguments: dict[str, Any], facts: dict[str, Any], memory: RemoteMemory
) -> tuple[str, object]:
    context = AgentContext(
        **facts,
        memory=cast("AgentMemory", memory),
        _loop=asyncio.get_running_loop(),
        _thread=threading.get_ident(),
    )

    async def work() -> object:
        found: Any = importlib.import_module(place[0])
        for part in place[1].split("."):
            found = getattr(found, part)
        made: FunctionTool = getattr(found, MARK)
        return await call(found, made.signature, arguments, context)

    try:
        return "done", await run_contained(place[1], work, _LONGEST)
    except ToolError as error:
        return "failed", error.message


def _send(pipe: IO[bytes], value: object) -> None:
    content = pickle.dumps(value)
    pipe.write(LENGTH.pack(len(content)) + content)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> tuple[Any, ...]:
    [length] = LENGTH.unpack(pipe.read(LENGTH.size))
    received: tuple[Any, ...] = pickle.loads(pipe.read(length))
    return received


if __name__ == "__main__":
    main()
