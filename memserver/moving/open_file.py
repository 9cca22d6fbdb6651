"""Which kind of agent file it is."""

import asyncio
from typing import IO

from memserver.agent.faculties import Faculties
from memserver.errors import AgentFileUnsupported
from memserver.moving.archive import ArchiveReader
from memserver.moving.source import Source

ZIP = b"PK"


async def open_source(file: IO[bytes], most_bytes: int, faculties: Faculties) -> Source:
    """Open a file that was sent.

    Args:
        file: stays open as long as the source is read.
        most_bytes: that it may unpack to.
        faculties: count tokens where the file doesn't say them.

    Raises:
        AgentFileError: it can't be read.
    """
    start = file.read(len(ZIP))
    file.seek(0)
    if start == ZIP:
        return await asyncio.to_thread(ArchiveReader, file, most_bytes)
    raise AgentFileUnsupported(
        "The file is no agent file.",
        hint="GET /v1/agents/{agent_id}/export makes one; Letta's .af is taken too.",
    )
