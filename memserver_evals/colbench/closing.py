"""What a task may own: processes and connections that have to be given back."""

from typing import Protocol


class Closes(Protocol):
    """Something that is closed when it is not needed any more."""

    async def aclose(self) -> None: ...
