"""Rules for the scripted server, by name: what it answers to a prompt, for tests and benchmarks."""

import re

from memserver.errors import ModelUnavailable
from memserver.llm.wire import NOTICE_MARK
from memserver.messages import JsonObject, Prompt, ToolSpecs
from memserver.testing.scripted import Call, Rule, Step, say

_TIME_STAMP = re.compile(r"^\[\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}[^\]\n]*\]\s*")
_NAME_ASKED = re.compile(r"What is my (\w+) called\?")
_EMPTY = {"string": "", "integer": 0, "number": 0, "boolean": False, "array": [], "object": {}}


def last_user_text(prompt: Prompt) -> str:
    """What the user said last, without the time that memserver puts in front."""
    for message in reversed(prompt):
        if message.role == "user" and not message.text.startswith(NOTICE_MARK):
            return _TIME_STAMP.sub("", message.text, count=1)
    return ""


def echo(prompt: Prompt, tools: ToolSpecs) -> Step:
    """Says "echo: " and what the user said last."""
    return _completed(say(f"echo: {last_user_text(prompt)}"), tools)


def remember(prompt: Prompt, tools: ToolSpecs) -> Step:
    """Answers "What is my … called?" from the prompt, if the user has said it; echoes anything else."""
    if (asked := _NAME_ASKED.search(last_user_text(prompt))) is not None:
        kept = re.compile(rf"\bmy {asked[1]} is called (\w+)", re.IGNORECASE)
        said = [found[1] for each in prompt if (found := kept.search(each.text)) is not None]
        if said:
            return _completed(say(f"Your {asked[1]} is called {said[-1]}."), tools)
    return echo(prompt, tools)


def search_then_echo(prompt: Prompt, tools: ToolSpecs) -> Step:
    """Searches the recall storage for the user's first word, and then echoes: two steps a turn."""
    if prompt[-1].role == "tool":
        return echo(prompt, tools)
    word = (last_user_text(prompt).split() or ["?"])[0]
    return _completed(
        Call("recall_memory_search", {"query": word, "request_heartbeat": True}), tools
    )


def prose(prompt: Prompt, _tools: ToolSpecs) -> Step:
    """Never calls a tool: a model that breaks the protocol every time."""
    return f"You said {last_user_text(prompt)}, didn't you?"


def down(_prompt: Prompt, _tools: ToolSpecs) -> Step:
    """Answers nothing but 503."""
    return ModelUnavailable("The scripted model is down.")


RULES: dict[str, Rule] = {
    "echo": echo,
    "remember": remember,
    "search_then_echo": search_then_echo,
    "prose": prose,
    "down": down,
}


def _completed(call: Call, tools: ToolSpecs) -> Call:
    """The call with what the tool requires besides, and without what it doesn't know."""
    spec = next((spec for spec in tools if spec.name == call.name), None)
    if spec is None:
        return call
    properties: JsonObject = spec.parameters.get("properties", {})
    given = {name: value for name, value in call.arguments.items() if name in properties}
    missing = [name for name in spec.parameters.get("required", ()) if name not in given]
    return Call(call.name, {**{name: _empty(properties.get(name)) for name in missing}, **given})


def _empty(schema: object) -> object:
    """A small value of a schema; null where it may be null."""
    if not isinstance(schema, dict):
        return None
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type")
    return None if isinstance(kind, list) else _EMPTY.get(str(kind))
