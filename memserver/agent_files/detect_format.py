"""Which kind of agent file it is."""

import asyncio
import json
from typing import IO

from memserver.agent.counting import count_entry
from memserver.agent.dependencies import TurnDependencies
from memserver.agent.rendering import prompt_messages
from memserver.agent_files.archive import ArchiveReader, parse_json
from memserver.agent_files.letta import LettaFile, find_letta
from memserver.agent_files.source import AgentSource
from memserver.errors import AgentFileTooLarge, AgentFileUnsupported

ZIP = b"PK"
LARGEST_LETTA = 100_000_000
"""Bytes of a Letta agent file, which is read as a whole."""
HINT = "GET /v1/agents/{agent}/export makes one; Letta's .af is taken too."


async def open_source(file: IO[bytes], most_bytes: int, deps: TurnDependencies) -> AgentSource:
    """Open a file that was sent, and that stays open as long as the source is read. Raises AgentFileError."""
    start = file.read(100)
    file.seek(0)
    if start.startswith(ZIP):
        return await asyncio.to_thread(ArchiveReader, file, most_bytes)
    text = start.decode(json.detect_encoding(start), "ignore").lstrip()  # PowerShell writes UTF-16
    if text[:1] in ("{", '"'):
        letta = await asyncio.to_thread(_read_letta, file)
        model = deps.models.get(None)
        shown = map(prompt_messages, letta.messages())
        letta.count_by([await count_entry(each, model) for each in shown])
        return letta
    raise AgentFileUnsupported("The file is no agent file.", hint=HINT)


def _read_letta(file: IO[bytes]) -> LettaFile:
    text = file.read(LARGEST_LETTA + 1)
    if len(text) > LARGEST_LETTA:
        raise AgentFileTooLarge(f"A Letta agent file has {LARGEST_LETTA} bytes at most.")
    given = find_letta(parse_json(text, "The file"))
    if given is None:
        raise AgentFileUnsupported("The JSON is no Letta agent file.", hint=HINT)
    return LettaFile(given)
