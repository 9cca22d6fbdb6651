"""A tool whose pattern explodes in Python's own engine, which lets no other thread run meanwhile."""

import re

from memserver.tools.function import tool


@tool(attached=True)
async def freeze() -> str:
    """Freeze the process."""
    return str(re.search("^(a+)+$", "a" * 60 + "!"))
