"""Chats with other assistants, as their exports and as message lists have them: what was said, by whom and when.

ChatGPT's export has the tree of each conversation: every edit of a question, and every answer that was asked for
again, is a branch; `current_node` is where the one ends that was shown last. Claude's has the messages of each
conversation in order. Messages as OpenAI's API takes them stand in a list, in an object's `messages`, or in one such
object on each line.

Sources: the exports themselves, as described by github.com/mitkury/chatgpt-export-parser and
github.com/Sinity/polylogue; developers.openai.com on chat completions and on files for fine-tuning.
"""

import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import IO, Literal

from memserver.agent_files.archive import DAMAGED
from memserver.agent_files.letta_messages import as_list, objects, time_of
from memserver.agent_files.source import Note
from memserver.errors import AgentFileCorrupt, AgentFileTooLarge, AgentFileUnsupported
from memserver.memory.bounded_json import read_values
from memserver.messages import JsonObject

ROLES: Mapping[object, Literal["user", "assistant"]] = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
}
TIMES = ("created_at", "create_time", "timestamp")
NO_TEXT = "Parts that are no text, such as pictures and files, and left out"
NO_TIME = "Have no time, and get that of the message before"
OTHER_ROLE = "Of other roles than the user's and the assistant's, such as tools, and left out"
TOOL_CALLS = "Calls of tools, and left out"
_IS_HIDDEN = "is_visually_hidden_from_conversation"
THOUGHTS = "Thoughts, and left out"
OTHER_BRANCH = "On branches that were not the ones shown last, and left out"
UNKNOWN = "Are no chats and no messages, and left out"
EMPTY = "Have no text, and are left out"
TITLES = "Titles of chats, and left out"
HIDDEN = "Hidden in the chats, such as custom instructions, and left out"
NO_CHATS = "Is no file of chats, and left out"
MOST_NAMED = 20
"""JSON files of an archive that are named; the others are counted with pictures and the like."""


@dataclass(frozen=True, slots=True)
class SaidMessage:
    """Something that was said; `chat` distinguishes the conversations of a file."""

    role: Literal["user", "assistant"]
    text: str
    created_at: datetime
    chat: str | None = None


@dataclass
class Chats:
    """What a file has: all its conversations as one history, in the order of time."""

    messages: list[SaidMessage] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    other_files: Sequence[str] = ()
    origin: str = "chats"

    @property
    def notes(self) -> list[Note]:
        counted = [Note("message", "", f"{what}: {n}.") for what, n in self.left_out.items() if n]
        named = [each for each in self.other_files if each.endswith(".json")][:MOST_NAMED]
        files = [Note("file", each, f"{NO_CHATS}.") for each in named]
        if unnamed := len(self.other_files) - len(named):
            files.append(Note("file", "", f"Pictures and other files of the archive: {unnamed}."))
        return counted + files


def read_chats(texts: Sequence[bytes], other_files: Sequence[str] = ()) -> Chats:
    """Read files of chats; `other_files` were beside them.

    Raises:
        AgentFileCorrupt: one is no JSON.
        AgentFileUnsupported: there is nothing in them that was said.
    """
    chats = Chats(other_files=other_files)
    loose: list[JsonObject] = []
    for text in texts:
        try:
            for value in read_values(text):
                _add_value(chats, value, loose)
        except (ValueError, RecursionError) as error:
            raise AgentFileCorrupt(f"The file: no valid JSON: {error}.") from error
    _add_messages(chats, loose, None, None)
    if not chats.messages:
        raise AgentFileUnsupported(
            "The JSON is no agent file, and has no chats.",
            hint="GET /v1/agents/{agent}/export makes agent files. Letta's .af, ChatGPT's and Claude's exports, and "
            'lists of {"role": …, "content": …} are taken, too.',
        )
    chats.messages.sort(key=lambda message: message.created_at)
    return chats


def texts_of(archive: zipfile.ZipFile, most_bytes: int) -> tuple[list[bytes], list[str]]:
    """The conversations in an export's archive, of which large exports have several files; and its other files.

    Raises:
        AgentFileCorrupt: it is damaged.
        AgentFileTooLarge: they are more than `most_bytes`.
    """
    files = [each for each in archive.infolist() if not each.is_dir()]
    members = [each for each in files if _has_conversations(each.filename)]
    others = [each.filename for each in files if each not in members]
    if sum(each.file_size for each in members) > most_bytes:
        raise AgentFileTooLarge(
            f"The file unpacks to more than {most_bytes} bytes.",
            hint="Raise MEMSERVER_IMPORT_MAX_BYTES.",
        )
    try:
        return [archive.read(each) for each in members], others
    except DAMAGED as error:
        raise AgentFileCorrupt(f"The file is damaged: {error}.") from error


def open_export(file: IO[bytes]) -> zipfile.ZipFile | None:
    """The archive of ChatGPT's or Claude's export, if it is one."""
    try:
        archive = zipfile.ZipFile(file)
    except DAMAGED:
        return None
    return archive if any(map(_has_conversations, archive.namelist())) else None


def _has_conversations(member: str) -> bool:
    name = member.rpartition("/")[2]
    return name.startswith("conversations") and name.endswith(".json")


def _add_value(chats: Chats, value: object, loose: list[JsonObject]) -> None:
    if isinstance(value, list):
        _add_messages(chats, value, None, None)
    elif not isinstance(value, dict):
        chats.left_out[UNKNOWN] += 1
    elif isinstance(value.get("mapping"), dict):
        chats.origin = "ChatGPT"
        _add_chat(chats, value, _shown_branch(chats, value))
    elif isinstance(value.get("chat_messages"), list):
        chats.origin = "Claude"
        _add_chat(chats, value, _shown_messages(chats, value))
    elif isinstance(value.get("messages"), list):
        _add_chat(chats, value, value["messages"])
    elif "role" in value:
        loose.append(value)
    else:
        chats.left_out[UNKNOWN] += 1


def _add_chat(chats: Chats, chat: JsonObject, messages: Sequence[object]) -> None:
    named = chat.get("id") or chat.get("conversation_id") or chat.get("uuid")
    chats.left_out[TITLES] += bool(chat.get("title") or chat.get("name"))
    _add_messages(chats, messages, str(named)[:200] if named else None, _time(chat))


def _add_messages(
    chats: Chats, messages: Sequence[object], chat: str | None, at: datetime | None
) -> None:
    added: list[SaidMessage] = []
    for message in objects(messages):
        author = message.get("author")
        role = author.get("role") if isinstance(author, dict) else None
        role = ROLES.get(role or message.get("role") or message.get("sender"))
        timed = _time(message)
        at = timed or at
        chats.left_out[TOOL_CALLS] += len(as_list(message.get("tool_calls")))
        if role is None:
            chats.left_out[OTHER_ROLE] += 1
        elif message.get("recipient") not in (None, "all"):  # ChatGPT's call of a tool
            chats.left_out[TOOL_CALLS] += 1
        elif text := _text(chats, message).strip():
            chats.left_out[NO_TIME] += timed is None
            added.append(SaidMessage(role, text, at or datetime.now(UTC), chat))
        else:
            chats.left_out[EMPTY] += 1
    chats.left_out[UNKNOWN] += len(messages) - len(objects(messages))
    latest = datetime.min.replace(tzinfo=UTC)
    for each in added:  # in a conversation each comes after the one before
        latest = max(latest, each.created_at)
        chats.messages.append(replace(each, created_at=latest))


def _shown_branch(chats: Chats, chat: JsonObject) -> list[JsonObject]:
    """ChatGPT's messages from the root to `current_node`."""
    nodes: JsonObject = chat["mapping"]
    said = sum(isinstance(each, dict) and bool(each.get("message")) for each in nodes.values())
    found: list[JsonObject] = []
    seen: set[object] = set()
    at = chat.get("current_node")
    if at not in nodes:  # the last one there is
        at = next(reversed(nodes), None)
    while isinstance(at, str) and at not in seen and isinstance(nodes.get(at), dict):
        seen.add(at)
        message = nodes[at].get("message")
        if isinstance(message, dict):
            found.append(message)
        at = nodes[at].get("parent")
    chats.left_out[OTHER_BRANCH] += said - len(found)
    shown = [each for each in reversed(found) if not _metadata(each).get(_IS_HIDDEN)]
    chats.left_out[HIDDEN] += sum(
        bool(_metadata(each).get(_IS_HIDDEN)) and _says_something(each) for each in found
    )
    return shown


def _metadata(message: JsonObject) -> JsonObject:
    metadata = message.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _says_something(message: JsonObject) -> bool:
    """Whether there is any text; ChatGPT puts empty messages of the system before each chat."""
    content = message.get("content")
    values = content.items() if isinstance(content, dict) else [("", content)]
    return any(
        value not in (None, "", [], [""]) for name, value in values if name != "content_type"
    )


def _shown_messages(chats: Chats, chat: JsonObject) -> list[JsonObject]:
    """Claude's messages; where the export says how they follow each other, those that were shown last."""
    messages = objects(chat["chat_messages"])
    by_id = {str(each.get("uuid")): each for each in messages}
    at = chat.get("current_leaf_message_uuid")
    found: list[JsonObject] = []
    while isinstance(at, str) and (message := by_id.pop(at, None)) is not None:
        found.append(message)
        at = message.get("parent_message_uuid")
    if not found:
        return messages
    chats.left_out[OTHER_BRANCH] += len(messages) - len(found)
    return found[::-1]


def _text(chats: Chats, message: JsonObject) -> str:
    """A message's text, of whatever form; text that was attached to it belongs to it."""
    content = message.get("content")
    if isinstance(content, dict):  # ChatGPT's
        if content.get("content_type") in ("thoughts", "reasoning_recap"):
            chats.left_out[THOUGHTS] += 1
            return ""
        content = content.get("parts") or content.get("text") or content.get("result")
    parts = [content] if isinstance(content, str) else as_list(content)
    texts = [text for part in parts if (text := _part(chats, part))]
    if not texts and isinstance(message.get("text"), str):  # Claude's, from before it had parts
        texts = [message["text"]]
    for attached in objects(message.get("attachments")):
        extracted = attached.get("extracted_content")
        if isinstance(extracted, str) and extracted:
            texts.append(f"[{attached.get('file_name') or 'attachment'}]\n{extracted}")
        else:
            chats.left_out[NO_TEXT] += 1
    # A picture of ChatGPT's is a part, too; a file is only there.
    files = len(as_list(_metadata(message).get("attachments"))) - _pointers(parts)
    chats.left_out[NO_TEXT] += len(as_list(message.get("files"))) + max(0, files)
    if not texts and isinstance(message.get("refusal"), str):
        texts = [message["refusal"]]
    return "\n".join(texts)


def _pointers(parts: Sequence[object]) -> int:
    return sum(isinstance(each, dict) and "asset_pointer" in each for each in parts)


def _part(chats: Chats, part: object) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") or part.get("content_type") if isinstance(part, dict) else None
    if isinstance(part, dict) and kind in (
        "text",
        "input_text",
        "output_text",
        "audio_transcription",
    ):
        return part["text"] if isinstance(part.get("text"), str) else ""
    if isinstance(part, dict) and isinstance(part.get("refusal"), str):
        return str(part["refusal"])
    match kind:
        case "thinking" | "reasoning":
            chats.left_out[THOUGHTS] += 1
        case "tool_use" | "tool_result":
            chats.left_out[TOOL_CALLS] += 1
        case _:
            chats.left_out[NO_TEXT] += 1
    return ""


def _time(value: JsonObject) -> datetime | None:
    for name in TIMES:
        given = value.get(name)
        if isinstance(given, int | float) and not isinstance(given, bool):
            try:
                return datetime.fromtimestamp(given, UTC)
            except (ValueError, OverflowError, OSError):
                continue
        if (at := time_of(given)) is not None:
            return at
    return None
