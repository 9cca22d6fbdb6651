"""The rules that several providers have, as functions that make them; a provider's own are in its profile."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from memserver.messages import JsonObject
from tests.endpoints.provider import Asked, Refused, Reply, Rule

_UNSET = object()
STRICT_SCHEMAS = "https://platform.openai.com/docs/guides/structured-outputs"
_NOT_STRICT = frozenset({"allOf", "oneOf", "not", "if", "then", "else", "patternProperties"})
_NINE = re.compile(r"[A-Za-z0-9]{9}")


def without(
    name: str, message: str, source: str, *, value: object = _UNSET, status: int = 400
) -> Rule:
    """A parameter is refused, or one value of it."""

    def check(asked: Asked) -> Refused | None:
        given = asked.body.get(name, _UNSET)
        wrong = given is not _UNSET and (value is _UNSET or given == value)
        return Refused(message, status, "unsupported_parameter") if wrong else None

    words = name if value is _UNSET else f"{name}: {json.dumps(value)}"
    return Rule(f"refuses `{words}`", source, check)


def no_tools(message: str, source: str, *, status: int = 400) -> Rule:
    """Native tools are refused."""
    return Rule(
        "refuses tools",
        source,
        lambda asked: Refused(message, status) if asked.tools else None,
    )


def no_tool_choice(
    message: str, source: str, *, only_objects: bool = False, status: int = 400
) -> Rule:
    """A call can't be demanded, or none of a named tool."""

    def check(asked: Asked) -> Refused | None:
        choice = asked.body.get("tool_choice")
        wrong = isinstance(choice, dict) or (choice == "required" and not only_objects)
        return Refused(message, status) if wrong else None

    what = "a named tool" if only_objects else "`tool_choice` other than auto"
    return Rule(f"refuses {what}", source, check)


def no_schema(message: str, source: str, *, status: int = 400) -> Rule:
    """An answer can't be held to a schema."""

    def check(asked: Asked) -> Refused | None:
        wanted = asked.body.get("response_format") or {}
        return Refused(message, status) if wanted.get("type") == "json_schema" else None

    return Rule("refuses `json_schema`", source, check)


def no_strict_tools(message: str, source: str, *, status: int = 400) -> Rule:
    """A tool may not say `strict`."""
    return Rule(
        "refuses `strict` tools",
        source,
        lambda asked: (
            Refused(message, status) if any("strict" in tool for tool in asked.tools) else None
        ),
    )


def strict_schemas(source: str = STRICT_SCHEMAS, *, lengths: bool = True) -> Rule:
    """What says `strict` must be of OpenAI's subset of JSON schema.

    Args:
        source: where that stands.
        lengths: whether minLength and maxLength are in the subset.
    """

    def check(asked: Asked) -> Refused | None:
        for tool in asked.tools:
            fault = tool.get("strict") and _fault(tool["parameters"], lengths=lengths)
            if fault:
                named = f"Invalid schema for function '{tool['name']}': {fault}"
                return Refused(named, code="invalid_function_parameters")
        schema = (asked.body.get("response_format") or {}).get("json_schema") or {}
        if schema.get("strict") and (fault := _fault(schema["schema"], lengths=lengths)):
            return Refused(f"Invalid schema for response_format '{schema['name']}': {fault}")
        return None

    return Rule(
        "strict schemas have an object as root, name all properties as required"
        + ("" if lengths else ", and have no `maxLength`"),
        source,
        check,
    )


def _fault(schema: JsonObject, *, lengths: bool) -> str:
    if schema.get("type") != "object" or "anyOf" in schema:
        return f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{schema.get('type')}\"'."
    for part in _parts(schema):
        for key in _NOT_STRICT & part.keys():
            return f"In context=(), '{key}' is not permitted."
        if not lengths and ("maxLength" in part or "minLength" in part):
            return "In context=('properties', 'message'), 'maxLength' is not permitted."
        if part.get("type") == "object":
            if part.get("additionalProperties") is not False:
                return "In context=(), 'additionalProperties' is required to be supplied and to be false."
            if set(part.get("required", ())) != set(part.get("properties", ())):
                return (
                    "In context=(), 'required' is required to be supplied and to be an array including every key in "
                    "properties."
                )
    return ""


def _parts(schema: Any) -> Iterator[JsonObject]:
    """A schema and those in it."""
    if not isinstance(schema, dict):
        return
    yield schema
    for key in ("properties", "$defs"):
        for part in schema.get(key, {}).values():
            yield from _parts(part)
    for part in schema.get("anyOf", ()):
        yield from _parts(part)
    yield from _parts(schema.get("items"))


def calls_are_answered(
    source: str = "https://platform.openai.com/docs/guides/function-calling",
) -> Rule:
    """Each call has its result right after it, and arguments are JSON."""

    def check(asked: Asked) -> Refused | None:
        open_calls: list[str] = []
        for number, message in enumerate(asked.messages):
            if message["role"] == "tool":
                if message.get("tool_call_id") not in open_calls:
                    return Refused(
                        f"Invalid parameter: messages[{number}] with role 'tool' must be a response to a preceding "
                        "message with 'tool_calls'."
                    )
                open_calls.remove(message["tool_call_id"])
                continue
            if open_calls:
                return Refused(
                    "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                    "'tool_call_id'."
                )
            for call in message.get("tool_calls") or ():
                json.loads(call["function"]["arguments"])
                open_calls.append(call["id"])
        return None

    return Rule("each call is followed by its result", source, check)


def calls_need_tools(message: str, source: str) -> Rule:
    """Calls in the messages are refused where the request offers no tools."""

    def check(asked: Asked) -> Refused | None:
        has_calls = any(each.get("tool_calls") for each in asked.messages)
        return Refused(message) if has_calls and not asked.tools else None

    return Rule("refuses calls in messages without `tools`", source, check)


def nine_characters(source: str) -> Rule:
    """Ids of calls have the form that Mistral's have."""

    def check(asked: Asked) -> Refused | None:
        for message in asked.messages:
            ids = [call["id"] for call in message.get("tool_calls") or ()]
            for name in [*ids, message.get("tool_call_id", "aaaaaaaaa")]:
                if not _NINE.fullmatch(name):
                    return Refused(
                        f"Tool call id was {name} but must be a-z, A-Z, 0-9, with a length of 9.",
                        code="3280",
                        more={"type": "invalid_function_call"},
                    )
        return None

    return Rule("ids of calls have nine letters or digits", source, check)


def assistant_after_tool(source: str) -> Rule:
    """A tool's result is not followed by what a user says; the last message is a user's or a tool's."""

    def check(asked: Asked) -> Refused | None:
        roles = [message["role"] for message in asked.messages]
        wrong = {"type": "invalid_request_message_order"}
        for before, role in pairwise(roles):
            if (before, role) in {("tool", "user"), ("tool", "system"), ("user", "tool")}:
                return Refused(
                    f"Unexpected role '{role}' after role '{before}'", code="3230", more=wrong
                )
        if roles[-1] not in {"user", "tool"}:
            return Refused(
                f"Expected last role User or Tool (or Assistant with prefix True) for serving but got {roles[-1]}",
                code="3230",
                more=wrong,
            )
        return None

    return Rule("no user's message after a tool's result", source, check)


def alternating(
    source: str,
    message: str = "Conversation roles must alternate user/assistant/user/assistant/...",
) -> Rule:
    """After the system message users and assistant take turns."""

    def check(asked: Asked) -> Refused | None:
        roles = [each["role"] for each in asked.messages]
        rest = roles[1:] if roles[0] == "system" else roles
        wanted = ["user" if index % 2 == 0 else "assistant" for index in range(len(rest))]
        return None if rest == wanted and rest[-1:] == ["user"] else Refused(message)

    return Rule("user and assistant alternate", source, check)


def since_user(messages: list[JsonObject]) -> Iterator[tuple[int, JsonObject]]:
    """The messages of the current turn, with their places: those from the user's last one on."""
    last = max((n for n, each in enumerate(messages) if each["role"] == "user"), default=0)
    yield from enumerate(messages[last:], last)


def comes_back(field: str, message: str, source: str, *, every: bool = False) -> Rule:
    """A field has to come back with each call, or with each message of the assistant's if there are tools."""

    def check(asked: Asked) -> Refused | None:
        for number, each in enumerate(asked.messages):
            needs = each.get("tool_calls") or (every and asked.tools)
            if needs and each["role"] == "assistant" and not isinstance(each.get(field), str):
                return Refused(message.format(number))
        return None

    def shape(_asked: Asked, reply: Reply) -> Reply:
        return with_fields(reply, {field: "I think about it."})

    return Rule(f"`{field}` has to come back", source, check, shape)


def stays_away(field: str, message: str, source: str, *, status: int = 400) -> Rule:
    """A field that replies have is refused in a prompt."""

    def check(asked: Asked) -> Refused | None:
        for number, each in enumerate(asked.messages):
            if field in each:
                return Refused(message.format(number), status)
        return None

    def shape(_asked: Asked, reply: Reply) -> Reply:
        return with_fields(reply, {field: "I think about it."})

    return Rule(f"sends `{field}` and refuses it", source, check, shape)


def with_fields(reply: Reply, fields: JsonObject) -> Reply:
    return Reply(reply.content, reply.calls, {**reply.fields, **fields})


def thoughts_in_content(before: str, after: str, words: str, source: str) -> Rule:
    """The content starts with a thought between marks, which has an example of a call in it."""
    thought = 'A call could look like {"tool": "send_message", "arguments": {"message": "wrong"}}. I know what to do.'

    def shape(_asked: Asked, reply: Reply) -> Reply:
        return Reply(f"{before}{thought}{after}{reply.content}", reply.calls, reply.fields)

    return Rule(words, source, shape=shape)
