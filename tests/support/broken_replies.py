"""Broken replies of a model: each is a valid call and a few mutations of it.

Of the arguments as values, of the call's JSON text, and of what stands around it. Owns what is broken
and how; `fuzz_replies` puts the replies to the parser.
"""

import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

from memserver.llm.reply_parser import RawCall, RawReply
from memserver.messages import JsonObject, ToolSpec


def _spec(name: str, properties: JsonObject, *required: str, **more: object) -> ToolSpec:
    schema = {"type": "object", "properties": properties, "required": list(required), **more}
    return ToolSpec(name, "", schema)


TOOLS = [
    _spec("send_message", {"message": {"type": "string", "maxLength": 200}}, "message"),
    _spec(
        "search",
        {
            "query": {"type": "string", "minLength": 1, "maxLength": 200},
            "page": {"type": "integer", "minimum": 0, "maximum": 1000},
            "share": {"type": "number", "multipleOf": 0.25},
            "order": {"enum": ["newest", "oldest"]},
            "request_heartbeat": {"type": "boolean"},
        },
        "query",
    ),
    _spec(
        "store",
        {
            "text": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
            "metadata": {"type": "object", "additionalProperties": {"type": "string"}},
            "tree": {"$ref": "#/$defs/node"},
        },
        "text",
        **{
            "$defs": {
                "node": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string", "pattern": "^[a-z]+$"},
                        "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
                    },
                    "required": ["name"],
                }
            }
        },
    ),
    _spec("anything", {}, additionalProperties=True),
    _spec("now", {}),
]
CALLS: list[tuple[str, JsonObject]] = [
    ("send_message", {"message": 'She said: "Hello {you}" \\ and left.\n日本 😀'}),
    ("search", {"query": "old bridges", "page": 2, "share": 0.5, "order": "newest"}),
    ("search", {"query": "it's", "page": None, "request_heartbeat": True}),
    ("store", {"text": "a fact", "tags": ["a", "b"], "metadata": {"from": "James"}}),
    ("store", {"text": None, "tree": {"name": "root", "children": [{"name": "leaf"}]}}),
    ("anything", {"of": [1, 2.5, "three", {"four": [None, False]}]}),
    ("now", {}),
]
SPECIALS = [
    "<|im_end|>",
    "<|eot_id|>",
    "</s>",
    "<tool_call>",
    "</tool_call>",
    "```json\n",
    "```",
    "<think>",
    "</think>",
    "[TOOL_CALLS]",
    "<|python_tag|>",
    "functions.search:0",
]
CHARACTERS = [
    "\x00",
    "\ud83d",
    "\ude00",
    "\ude00\ud83d",
    "\u2028",
    "\ufeff",
    "\u202e",
    "e\u0301",
    "\\ud83d",
    "\\u0000",
    "\\u12",
    "\\x41",
    '\\"',
    "\\\\",
    '"',
    "'",
    "\\",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\t",
    "\r\n",
]
NUMBERS = ["NaN", "-Infinity", "1e999", "1e308", "-0", "007", "1_000", "0x1F", "1.", "9" * 4299]
NUMBERS += ["9" * 5000, "1e-999", "0.1" + "0" * 400, "-" + "8" * 330]


def replies(seed: int) -> Iterator[RawReply]:
    """Replies without end; the same ones for the same seed."""
    chance = random.Random(seed)
    while True:
        yield reply(chance)


def reply(chance: random.Random) -> RawReply:
    """One reply, native or in text."""
    name, arguments = chance.choice(CALLS)
    value: Any = json.loads(json.dumps(arguments))
    for _ in range(_few(chance)):
        value = chance.choice(VALUE_MUTATIONS)(chance, value)
    finish = chance.choice(["stop", "stop", "tool_calls", "length", ""])
    if chance.random() < 0.4:
        return RawReply(
            _prose(chance), tuple(_native_calls(chance, name, value)), _thought(chance), finish
        )
    text = _call_text(chance, name, value)
    for _ in range(_few(chance)):
        text = chance.choice(TEXT_MUTATIONS)(chance, text)
    return RawReply(text, (), _thought(chance), finish)


def _few(chance: random.Random) -> int:
    return chance.choice([0, 0, 1, 1, 1, 2, 3])


def _native_calls(chance: random.Random, name: str, value: object) -> Iterator[RawCall]:
    for _ in range(chance.choice([1, 1, 1, 2, 5])):
        called: object = name
        if chance.random() < 0.15:
            called = chance.choice(
                [None, "", f" {name} ", "fly", 3, [name], "x" * 5000, _deep(990)]
            )
        given: object = value
        if chance.random() < 0.8:
            given = _dumps(chance, value)
            for _ in range(_few(chance)):
                given = chance.choice(TEXT_MUTATIONS)(chance, str(given))
        yield RawCall(called, given)


def _call_text(chance: random.Random, name: str, value: object) -> str:
    tool, arguments = chance.choice(
        [("tool", "arguments"), ("name", "parameters"), ("tool", "args")]
    )
    called: object = name if chance.random() < 0.9 else chance.choice([None, 3, [], {}, "fly"])
    if chance.random() < 0.1:
        value = _dumps(chance, value)
    members = [(tool, called), (arguments, value)]
    if chance.random() < 0.2:
        members.reverse()
    if chance.random() < 0.1:
        members.pop()
    return _dumps(chance, dict(members))


def _dumps(chance: random.Random, value: object) -> str:
    return json.dumps(
        value, ensure_ascii=chance.random() < 0.3, indent=chance.choice([None, None, 2])
    )


def _prose(chance: random.Random) -> str:
    return chance.choice(
        ["", "", "I look it up. ", "Of {course}: ", "<think>Well.</think>", "\ud83d"]
    )


def _thought(chance: random.Random) -> str:
    return chance.choice(["", "", "", "I should answer.", "\x00"])


# Mutations of the arguments, as values.


def _any_value(chance: random.Random) -> Any:
    return chance.choice(
        [
            None,
            True,
            0,
            -1,
            2.0,
            1e308,
            10**400,
            10**308,
            float("nan"),
            float("inf"),
            "",
            " ",
            "two",
            "2",
            "true",
            "[1]",
            '{"a": {"b": "}"}}',
            "x" * 300,
            "\ud83d",
            "a\x00b",
            [],
            {},
            [[]],
            [None, {"a": [1]}],
            [{"a": 1}] * 50,
            list(range(300)),
            {"a" * 600: 1},
            {f"key {number}": number for number in range(60)},
        ]
    )


def _swap(chance: random.Random, value: Any) -> Any:
    """Another value in one place, at any depth."""
    if isinstance(value, dict) and value and chance.random() < 0.85:
        key = chance.choice(list(value))
        return {**value, key: _swap(chance, value[key])}
    if isinstance(value, list) and value and chance.random() < 0.7:
        place = chance.randrange(len(value))
        return [*value[:place], _swap(chance, value[place]), *value[place + 1 :]]
    return _any_value(chance)


def _drop(chance: random.Random, value: Any) -> Any:
    if not isinstance(value, dict) or not value:
        return value
    gone = chance.choice(list(value))
    return {key: member for key, member in value.items() if key != gone}


def _add(chance: random.Random, value: Any) -> Any:
    added = chance.choice(["", "extra", "message", "日本", "\ud83d", "k" * 2000, "a.b", "tool"])
    if chance.random() < 0.1:
        return {f"{added}{number}": number for number in range(200)}
    return {**value, added: _any_value(chance)} if isinstance(value, dict) else [value]


def _nest(chance: random.Random, value: Any) -> Any:
    depth = chance.choice([1, 3, 60, 70, 200])
    if not isinstance(value, dict):
        return [value]
    key = chance.choice([*value, "of"])
    nested = _deep(depth)
    if chance.random() < 0.5:
        nested = {"name": "root"}
        for _ in range(min(depth, 40)):
            nested = {"name": chance.choice(["leaf", "LEAF", 3]), "children": [nested]}
        key = "tree"
    return {**value, key: nested}


def _deep(depth: int) -> Any:
    value: Any = "deep"
    for _ in range(depth):
        value = [value]
    return value


def _as_other(chance: random.Random, value: Any) -> Any:
    return chance.choice([[value], _any_value(chance), {"arguments": value}, {"tool": value}])


VALUE_MUTATIONS: list[Callable[[random.Random, Any], Any]] = [
    _swap,
    _swap,
    _swap,
    _drop,
    _add,
    _nest,
    _as_other,
]

# Mutations of text.


def _place(chance: random.Random, text: str) -> int:
    return chance.randint(0, len(text))


def _truncate(chance: random.Random, text: str) -> str:
    return text[: _place(chance, text)]


def _behead(chance: random.Random, text: str) -> str:
    return text[_place(chance, text) :]


def _delete(chance: random.Random, text: str) -> str:
    start = _place(chance, text)
    return text[:start] + text[start + chance.choice([1, 1, 2, 10]) :]


def _repeat(chance: random.Random, text: str) -> str:
    first, second = sorted((_place(chance, text), _place(chance, text)))
    return text[:second] + text[first:second] * chance.choice([1, 1, 3]) + text[second:]


def _insert(chance: random.Random, text: str) -> str:
    start = _place(chance, text)
    return text[:start] + chance.choice(CHARACTERS + SPECIALS) + text[start:]


def _two(chance: random.Random, text: str) -> str:
    between = chance.choice(["", "\n", ", ", " and then ", "</tool_call><tool_call>"])
    return text + between + chance.choice([text, '{"a": 1}', '{"tool": "now"}', "{", "{}"])


def _before(chance: random.Random, text: str) -> str:
    quoted = ['{"a": 1} ', "{ } ", '{"tool": ', "{x} ", "<think>{}</think>", "<think>", "[1] "]
    return (
        chance.choice([*quoted, "Here it is:\n", "{" * 50, '{"a":' * 200, '{"a": 1}' * 20]) + text
    )


def _wrap(chance: random.Random, text: str) -> str:
    pairs = [("<tool_call>", "</tool_call>"), ("```json\n", "\n```"), ("[", "]"), ("(", ")")]
    start, end = chance.choice([*pairs, ("'", "'"), ("\ufeff", ""), ('{"tool_calls": [', "]}")])
    return start + text + (end if chance.random() < 0.8 else "")


def _number(chance: random.Random, text: str) -> str:
    """Another number, or one where something else stood."""
    number = chance.choice(NUMBERS)
    changed = re.sub(r"(?<=: )[^\s\"{\[][^,}\]]*", lambda _: number, text, count=1)
    return changed if changed != text else re.sub(r': "[^"]*"', f": {number}", text, count=1)


def _quote(chance: random.Random, text: str) -> str:
    swapped = [text.replace('"', "'"), text.replace('"', "\u201d"), json.dumps(text)]
    return chance.choice([*swapped, text.replace("\\", ""), text.replace(": true", ": True")])


def _deepen(chance: random.Random, text: str) -> str:
    opening = chance.choice(['{"a":', "[", '{"a":['])
    deep = opening * chance.choice([10, 100, 2000, 50_000 if chance.random() < 0.02 else 500])
    return re.sub(r": [^,}]*", lambda _: f": {deep}", text, count=1)


def _long(chance: random.Random, text: str) -> str:
    """Long without sense: what a model writes that has lost itself."""
    size = 200_000 if chance.random() < 0.02 else 2000
    unit = chance.choice(["a", " ", "\n", "{ ", '{"', "\\", "</tool_call>", "[1],", "😀"])
    start = _place(chance, text)
    return text[:start] + unit * (size // len(unit)) + text[start:]


TEXT_MUTATIONS: list[Callable[[random.Random, str], str]] = [
    _truncate,
    _behead,
    _delete,
    _repeat,
    _insert,
    _insert,
    _two,
    _before,
    _wrap,
    _number,
    _quote,
    _deepen,
    _long,
]
