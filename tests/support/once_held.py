"""A model for a server in another thread, which keeps its answers until the test lets them go."""

import asyncio
import threading
from functools import partial

from memserver.messages import Prompt, ToolSpecs
from memserver.testing.scripted import Held, Step


class OnceHeld:
    """A model that keeps its answer until it is let go, from any thread."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._let_go = threading.Event()

    def __call__(self, prompt: Prompt, tools: ToolSpecs = ()) -> Step:
        held = asyncio.Event()
        wake = partial(asyncio.get_running_loop().call_soon_threadsafe, held.set)
        threading.Thread(target=lambda: self._let_go.wait() and wake(), daemon=True).start()
        return Held(self._step, held)

    def let_go(self) -> None:
        self._let_go.set()
