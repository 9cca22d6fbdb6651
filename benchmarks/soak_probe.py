"""Loaded by the servers that `benchmarks.soak` watches: on SIGUSR2 a process writes what it alone can count.

Its asyncio tasks, and its objects by their type, go to MEMSERVER_HOME/<pid>.counts.
"""

import asyncio
import gc
import json
import os
import signal
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

from memserver.tools.function import tool


@tool
async def probed() -> str:
    """Do nothing: a module of tools has to have one."""
    return ""


def write_counts(*_: object) -> None:
    """Count, and put the whole file there at once."""
    tasks = 0
    with suppress(RuntimeError):  # no loop runs
        tasks = len(asyncio.all_tasks())
    objects = Counter(type(each).__qualname__ for each in gc.get_objects())
    file = Path(os.environ["MEMSERVER_HOME"]) / f"{os.getpid()}.counts"
    part = file.with_suffix(".part")
    part.write_text(json.dumps({"tasks": tasks, "objects": objects}))
    part.replace(file)


if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGUSR2, write_counts)
