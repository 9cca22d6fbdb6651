"""The model behind every stub: it reads what the user said last, and calls the tool that answers it.

It does what the story asks for, whichever way it reads of its tools and whatever a template did to the messages.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from memserver.llm.modes import PROBE
from memserver.llm.tool_schema import TOOLS_HEADING
from memserver.llm.wire import RESULT_MARK
from memserver.messages import JsonObject
from memserver.testing.scripted import NOTHING_TO_SAVE
from tests.endpoints.provider import Asked, Reply

SUMMARY = "The user has a dog and a lantern."
_NUMBER = re.compile(r"#(\d+) ")
_TOLD_TOOL = re.compile(r"^- (\S+?)(?::[^\n]*)?\n  arguments: (\{.*\})$", re.MULTILINE)
_COLOUR = re.compile(r"lantern is (\w+)")
_EMPTY = {"string": "", "integer": 0, "number": 0, "boolean": False, "array": [], "object": {}}


def reply(asked: Asked) -> Reply:
    """What the model answers."""
    offered = _offered(asked)
    if not offered:
        return Reply(SUMMARY)
    name, arguments = _call(asked.messages, offered)
    call = json.dumps(_completed(offered[name], arguments), ensure_ascii=False)
    if asked.tools:
        return Reply(calls=({"name": name, "arguments": call},))
    return Reply(f'{{"tool": "{name}", "arguments": {call}}}')


def said(messages: list[JsonObject]) -> tuple[int, str]:
    """The number of what the user said last, and all that was written from there on."""
    texts = [(message["role"], _flat(message, messages)) for message in messages]
    numbers = (
        int(number) for role, text in texts if role == "user" for number in _NUMBER.findall(text)
    )
    newest = max(numbers, default=0)
    whole = "\n".join(text for _, text in texts)
    return newest, whole.partition(f"#{newest} ")[2]


def _call(messages: list[JsonObject], offered: dict[str, JsonObject]) -> tuple[str, JsonObject]:
    if PROBE.name in offered:
        return PROBE.name, {"ready": True}
    if NOTHING_TO_SAVE.name in offered:
        return NOTHING_TO_SAVE.name, {}
    number, rest = said(messages)
    wish, _, after = rest.partition("\n")
    for words, tool, arguments, answer in (
        (
            "Remember",
            "working_context_append",
            {"section": "human", "content": "Dog: Rex"},
            "Noted",
        ),
        ("Look for", "recall_memory_search", {"query": "lantern"}, "It is"),
    ):
        if wish.startswith(words):
            mark = f"{RESULT_MARK}{tool}]"
            if mark not in after and tool in offered:
                return tool, {**arguments, "request_heartbeat": True}
            found = _COLOUR.search(after.partition(mark)[2])
            return "send_message", {"message": f"{answer} {found[1] if found else ''}".strip()}
    return "send_message", {"message": f"Answer {number}"}


def _flat(message: JsonObject, messages: list[JsonObject]) -> str:
    """A message as text; a tool's result as JSON mode writes it."""
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "".join(part.get("text", "") for part in content)
    if message["role"] != "tool":
        return str(content)
    called = {
        call["id"]: call["function"]["name"]
        for each in messages
        for call in each.get("tool_calls") or ()
    }
    return f"{RESULT_MARK}{called.get(message['tool_call_id'], '?')}]\n{content}"


def _offered(asked: Asked) -> dict[str, JsonObject]:
    """The parameters of the tools that it reads of, by name."""
    if asked.tools:
        return {tool["name"]: tool.get("parameters", {}) for tool in asked.tools}
    if "response_format" in asked.body:
        return dict(_answers(asked.body["response_format"]))
    reported = "\n".join(_flat(each, asked.messages) for each in asked.messages[:1])
    listed = reported.partition(TOOLS_HEADING)[2]
    return {name: json.loads(schema) for name, schema in _TOLD_TOOL.findall(listed)}


def _answers(schema: Any) -> Iterator[tuple[str, JsonObject]]:
    """The tools that a schema's answers name, wherever they stand in it."""
    if isinstance(schema, list):
        for each in schema:
            yield from _answers(each)
    if not isinstance(schema, dict):
        return
    properties = schema.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    tool = properties.get("tool")
    if isinstance(tool, dict) and (names := tool.get("enum") or [tool.get("const")]) != [None]:
        for name in names:
            yield name, properties.get("arguments", {})
        return
    for each in schema.values():
        yield from _answers(each)


def _completed(schema: JsonObject, arguments: JsonObject) -> JsonObject:
    """The arguments with what the schema requires besides, and without what it doesn't know."""
    properties = schema.get("properties", {})
    missing = [name for name in schema.get("required", ()) if name not in arguments]
    made = {name: _empty(properties.get(name, {})) for name in missing}
    known = {
        name: value for name, value in arguments.items() if not properties or name in properties
    }
    return {**made, **known}


def _empty(schema: JsonObject) -> object:
    kind = schema.get("type")
    return None if isinstance(kind, list) or "anyOf" in schema else _EMPTY.get(str(kind))
