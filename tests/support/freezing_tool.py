"""A tool whose pattern explodes in Python's own engine, which lets no other thread run meanwhile."""

import re
from collections.abc import Awaitable, Callable

from memserver.tools.function import tool


def _made() -> Callable[[], Awaitable[str]]:
    """Made here, so that another process can't find it: it stands for code of the server's own."""

    @tool(attached=True)
    async def freeze() -> str:
        """Freeze the process."""
        return str(re.search("^(a+)+$", "a" * 60 + "!"))

    return freeze


freeze = _made()
