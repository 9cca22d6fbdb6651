"""Which kind of file it is that an agent, or its history, comes from."""

import asyncio
import json
from typing import IO

from memserver.agent.counting import count_entry
from memserver.agent.dependencies import TurnDependencies
from memserver.agent.rendering import prompt_messages
from memserver.agent_files.archive import ArchiveReader
from memserver.agent_files.chats import Chats, open_export, read_chats, texts_of
from memserver.agent_files.letta import LettaFile, find_letta
from memserver.agent_files.letta_messages import History
from memserver.agent_files.records import AgentRecord, State
from memserver.agent_files.source import AgentSource, WholeSource
from memserver.errors import AgentFileCorrupt, AgentFileTooLarge, AgentFileUnsupported
from memserver.memory.bounded_json import read_values
from memserver.storage.inbox import PLACES_PER_TURN

ZIP = b"PK"
LARGEST_CHATS = 500_000_000
"""Bytes of a file of JSON, or of such files in an archive: they are read as a whole."""
HINT = "GET /v1/agents/{agent}/export makes one; Letta's .af, ChatGPT's and Claude's exports are taken too."


class ChatsSource(WholeSource):
    """An agent that has nothing but chats as its history, which it finds by search."""

    def __init__(self, chats: Chats) -> None:
        super().__init__()
        self.notes = chats.notes
        history = History()
        for each in chats.messages:
            begins = each.role == "user"
            history.add(each.role, each.text, "", each.created_at, None, begins=begins)
            if begins:
                history.messages[-1] = history.messages[-1].model_copy(update={"chat": each.chat})
        self._records["messages"] = list(history.messages)
        self._records["turns"] = list(history.turns)
        done = len(history.turns)
        state = State(
            done_turn=done,
            queue_start=(done + 1) * PLACES_PER_TURN,
            stats_messages=len(history.messages),
        )
        self.agent = AgentRecord(name=chats.origin, state=state)


async def open_source(file: IO[bytes], most_bytes: int, deps: TurnDependencies) -> AgentSource:
    """Open a file that was sent, and that stays open as long as the source is read. Raises AgentFileError."""
    found = await asyncio.to_thread(_open, file, most_bytes)
    if isinstance(found, ArchiveReader):
        return found
    source = await asyncio.to_thread(ChatsSource, found) if isinstance(found, Chats) else found
    model = deps.models.get(None)
    shown = map(prompt_messages, source.messages())
    source.count_by([await count_entry(each, model) for each in shown])
    return source


async def open_chats(file: IO[bytes], most_bytes: int) -> Chats:
    """The chats that were sent as a file. Raises AgentFileError: also where it is of an agent as a whole."""
    found = await asyncio.to_thread(_open, file, most_bytes)
    if not isinstance(found, Chats):
        raise AgentFileUnsupported(
            "The file is of an agent as a whole.",
            hint="POST /v1/agents/import makes a new agent of it.",
        )
    return found


def _open(file: IO[bytes], most_bytes: int) -> ArchiveReader | LettaFile | Chats:
    start = file.read(100)
    file.seek(0)
    if start.startswith(ZIP):
        export = open_export(file)
        if export is None:
            return ArchiveReader(file, most_bytes)
        return read_chats(*texts_of(export, min(most_bytes, LARGEST_CHATS)))
    text = start.decode(json.detect_encoding(start), "ignore").lstrip()  # PowerShell writes UTF-16
    if text[:1] not in ("{", "[", '"'):
        raise AgentFileUnsupported("The file is no agent file.", hint=HINT)
    content = file.read(LARGEST_CHATS + 1)
    if len(content) > LARGEST_CHATS:
        raise AgentFileTooLarge(f"A file of JSON has {LARGEST_CHATS} bytes at most.")
    try:
        given = None if text[0] == "[" else find_letta(next(read_values(content), None))
    except (ValueError, RecursionError) as error:
        raise AgentFileCorrupt(f"The file: no valid JSON: {error}.") from error
    return read_chats([content]) if given is None else LettaFile(given)
