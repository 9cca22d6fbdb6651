"""Raw outputs of models, in the syntax of each family that vLLM has a parser for, and what is to come
of them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from memserver.messages import ToolSpec
from memserver.text import clean
from tests.support.model_contract import NOW, SEARCH, SEND

AS_TEXT = "\x1f"
"""What stands between two of these is written as pieces of text, even where it looks like a special
token."""
SWITCH = ToolSpec(
    "switch",
    "Switch the light.",
    {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"]},
)
TOOLS = [SEND, SEARCH, SWITCH, NOW]


@dataclass(frozen=True)
class Family:
    """How the models of a family write calls, each given as a name and JSON text (None: no arguments)."""

    name: str
    parser: str
    write: Callable[[list[tuple[str, str | None]]], str]
    tokens: tuple[str, ...] = ()
    special_tokens: tuple[str, ...] = ()
    reasoning_parser: str = ""
    thought: str = ""

    def call(self, name: str, arguments: str | None = "{}") -> str:
        return self.write([(name, arguments)])

    @property
    def described(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "parser": self.parser,
            "reasoning_parser": self.reasoning_parser,
            "tokens": self.tokens,
            "special_tokens": self.special_tokens,
        }


def _object(name: str, arguments: str | None, key: str = "arguments") -> str:
    members = [f'"name": {json.dumps(name)}']
    if arguments is not None:
        members.append(f'"{key}": {arguments}')
    return f"{{{', '.join(members)}}}"


def _hermes(calls: list[tuple[str, str | None]]) -> str:
    return "\n".join(f"<tool_call>\n{_object(*call)}\n</tool_call>" for call in calls)


def _llama(calls: list[tuple[str, str | None]]) -> str:
    return "; ".join(_object(*call, key="parameters") for call in calls)


def _qwen(calls: list[tuple[str, str | None]]) -> str:
    return "\n".join(
        f"<tool_call>\n<function={name}>\n{_qwen_parameters(arguments)}</function>\n</tool_call>"
        for name, arguments in calls
    )


def _qwen_parameters(arguments: str | None) -> str:
    try:
        given = json.loads((arguments or "").replace(AS_TEXT, "\\u001f"))
    except ValueError:
        return arguments or ""
    if not isinstance(given, dict):
        return f"{arguments}\n"
    texts = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in given.items()
    }
    return "".join(
        f"<parameter={name}>\n{clean(text)}\n</parameter>\n" for name, text in texts.items()
    )


def _mistral(calls: list[tuple[str, str | None]]) -> str:
    return "".join(f"[TOOL_CALLS]{name}[ARGS]{arguments or ''}" for name, arguments in calls)


def _old_mistral(calls: list[tuple[str, str | None]]) -> str:
    return f"[TOOL_CALLS][{', '.join(_object(*call) for call in calls)}]"


def _guided(calls: list[tuple[str, str | None]]) -> str:
    return f"[{', '.join(_object(*call, key='parameters') for call in calls)}]"


_THINK = ("<think>", "</think>")
_TAGS = ("<tool_call>", "</tool_call>")
FAMILIES = [
    Family("hermes", "hermes", _hermes, (*_TAGS, *_THINK)),
    Family("llama3_json", "llama3_json", _llama, special_tokens=("<|python_tag|>",)),
    Family("qwen3_coder", "qwen3_coder", _qwen, (*_TAGS, *_THINK)),
    Family(
        "qwen3_thinking",
        "qwen3_xml",
        _qwen,
        (*_TAGS, *_THINK),
        reasoning_parser="qwen3",
        thought="<think>\nHm.\n</think>\n\n",
    ),
    Family("mistral_v11", "mistral", _mistral, special_tokens=("[TOOL_CALLS]", "[ARGS]")),
    Family("mistral_v3", "mistral", _old_mistral, special_tokens=("[TOOL_CALLS]",)),
    Family("held_to_a_list", "pythonic", _guided),
]


@dataclass(frozen=True)
class Violation:
    """The model reads so: `saying` is in the message."""

    saying: str


@dataclass(frozen=True)
class Called:
    """The call is taken."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Refused:
    """vLLM fails at its own answer, and tells of a bad request: the turn fails, and says so."""

    saying: str


Outcome = Called | Violation | Refused


Write = Callable[[Family], str]


@dataclass(frozen=True)
class Case:
    """One output in every family's syntax.

    `but` holds where something else comes of it, since vLLM's parser loses or repairs something: its keys
    are words that stand in "family whole" or "family streamed".
    """

    name: str
    output: Write
    outcome: Outcome
    finish: str = "stop"
    but: Mapping[str, Outcome] = field(default_factory=dict)

    def outcome_for(self, family: str, kind: str) -> Outcome:
        fits = [
            outcome
            for words, outcome in self.but.items()
            if all(word in f"{family} {kind}" for word in words.split())
        ]
        assert len(fits) <= 1, f"{self.name}: more than one outcome for {family} {kind}"
        return fits[0] if fits else self.outcome


def _case(
    name: str,
    output: Write,
    outcome: Outcome,
    but: Mapping[str, Outcome] | None = None,
    finish: str = "stop",
) -> Case:
    return Case(name, lambda family: family.thought + output(family), outcome, finish, but or {})


def _search(arguments: str | None) -> Write:
    return lambda family: family.call("search", arguments)


def _text(text: str) -> Write:
    return lambda _: text


def _up_to(mark: str, output: Write) -> Write:
    return lambda family: output(family).partition(mark)[0]


RIGHT = '{"query": "kiwi", "page": 2}'
GREETING = '{"inner_thought": "Hm", "message": "Hello kiwi"}'
CONTROL = "<|im_end|> <tool_call> </tool_call> [TOOL_CALLS] <|python_tag|> </s> [/INST]"
FOUND = Called("search", {"query": "kiwi", "page": 2})
EMPTY = Violation("Your answer was empty. Call exactly one of: send_message, search")
THOUGHT = Violation("Your answer had reasoning only and no tool call. Call exactly one of:")
TEXT = Violation(
    "Your answer was text without a tool call; nobody has seen it. Call exactly one of:"
)
CUT_OFF = Violation("reached the output limit")
NO_OBJECT = Violation("The arguments of search must be a JSON object with named arguments.")
NO_QUERY = Violation("search needs the argument query: call it again with it.")
NO_JSON = Violation("not valid JSON")

LOST = {"held_to_a_list whole": EMPTY}
"""Where any other parser's call is required, vLLM holds the model to a list; what is none, it drops."""
NO_PROSE = LOST | {"mistral_v3 streamed": EMPTY}
"""An old Mistral's stream is taken for a bare list where a call is required, and prose is dropped."""
PARAMETERS_ONLY = {"qwen3": NO_QUERY}
"""Qwen writes each argument as an element: what stands between these is dropped."""

CASES = [
    _case("a_right_call", _search(RIGHT), FOUND),
    _case("a_tool_without_arguments_or_description", lambda f: f.call("now"), Called("now")),
    _case("two_calls_at_once", lambda f: f.write([("search", RIGHT), ("now", "{}")]), FOUND),
    _case(
        "a_wrong_call_before_a_right_one",
        lambda f: f.write([("serch", RIGHT), ("search", RIGHT)]),
        Violation("There is no tool serch. Call one of: send_message, search"),
    ),
    _case("two_objects", lambda f: f"{f.call('search', RIGHT)}\n{f.call('now')}", FOUND, LOST),
    _case("cut_off_in_the_arguments", _up_to("wi", _search(RIGHT)), CUT_OFF, finish="length"),
    _case("cut_off_in_the_name", _up_to("arch", _search(RIGHT)), CUT_OFF, finish="length"),
    _case(
        "cut_off_in_the_last_text",
        _up_to("wi", lambda f: f.call("send_message", GREETING)),
        CUT_OFF,
        finish="length",
    ),
    _case(
        "cut_off_behind_the_call",
        lambda f: f"{f.call('search', RIGHT)}\nNow I",
        CUT_OFF,
        finish="length",
    ),
    _case(
        "ended_in_the_arguments",
        _up_to("wi", _search(RIGHT)),
        NO_JSON,
        LOST | {"qwen3 whole": NO_QUERY, "mistral_v3 whole": TEXT},
    ),
    _case(
        "broken_json",
        _search('{"query": "kiwi", "page": 2,,}'),
        NO_JSON,
        LOST | PARAMETERS_ONLY | {"mistral_v3 whole": TEXT},
    ),
    _case(
        "prose_before",
        lambda f: f"Let me look.\n{f.call('search', RIGHT)}",
        FOUND,
        NO_PROSE | {"llama3_json streamed": TEXT},
    ),
    _case(
        "prose_behind",
        lambda f: f"{f.call('search', RIGHT)}\nDone.",
        FOUND,
        LOST | {"mistral_v11 streamed": NO_JSON},
    ),
    _case(
        "arguments_as_a_list",
        _search('["kiwi", 2]'),
        NO_OBJECT,
        LOST | PARAMETERS_ONLY | {"mistral_v3 streamed": NO_QUERY},
    ),
    _case("arguments_as_text", _search(json.dumps(RIGHT)), FOUND, LOST | PARAMETERS_ONLY),
    _case(
        "arguments_twice_as_text",
        _search(json.dumps(json.dumps(RIGHT))),
        NO_OBJECT,
        LOST | PARAMETERS_ONLY | {"mistral_v3": FOUND},
    ),
    _case("arguments_null", _search("null"), NO_QUERY),
    _case("arguments_missing", _search(None), NO_QUERY, {"held_to_a_list streamed": EMPTY}),
    _case("arguments_empty", _search("{}"), NO_QUERY),
    _case("an_argument_missing", _search('{"page": 2}'), NO_QUERY),
    _case(
        "an_argument_too_many",
        _search('{"query": "kiwi", "color": "red"}'),
        Violation("color"),
    ),
    _case(
        "an_unknown_tool",
        lambda f: f.call("fly"),
        Violation("There is no tool fly. Call one of: send_message, search"),
    ),
    _case(
        "no_tool_name",
        lambda f: f.call(""),
        Violation("There is no tool (none). Call one of: send_message, search"),
        {
            "hermes streamed": EMPTY,
            "llama3_json streamed": EMPTY,
            "qwen3_coder": EMPTY,
            "qwen3_thinking": THOUGHT,
        },
    ),
    _case("a_number_as_text", _search('{"query": "kiwi", "page": "2"}'), FOUND),
    _case("a_number_for_a_text", _search('{"query": 5}'), Called("search", {"query": "5"})),
    _case("a_text_for_a_number", _search('{"query": "kiwi", "page": "two"}'), Violation("page")),
    _case(
        "a_boolean_as_text",
        lambda f: f.call("switch", '{"on": "true"}'),
        Called("switch", {"on": True}),
    ),
    _case(
        "a_number_for_a_boolean",
        lambda f: f.call("switch", '{"on": 1}'),
        Violation("The argument on of switch"),
        {
            "qwen3": Called("switch", {"on": True}),
            "mistral_v11 whole": Called("switch", {"on": True}),
        },
    ),
    _case("nothing", _text(""), EMPTY, {"qwen3_thinking": THOUGHT}),
    _case("white_space", _text(" \n"), EMPTY, {"qwen3_thinking": THOUGHT}),
    _case("prose_only", _text("I am fine."), TEXT, NO_PROSE | {"held_to_a_list streamed": EMPTY}),
    Case(
        "reasoning_only",
        lambda f: f.thought or "<think>\nI should look.\n</think>",
        THOUGHT,
        but=NO_PROSE | {"held_to_a_list streamed": EMPTY},
    ),
    Case("reasoning_cut_off", _text("<think>\nI should"), CUT_OFF, finish="length"),
    Case(
        "reasoning_before_a_call",
        lambda f: (f.thought or "<think>\nHm.\n</think>\n") + f.call("search", RIGHT),
        FOUND,
        but=NO_PROSE,
    ),
    _case(
        "special_tokens_as_text_in_an_argument",
        _search(f'{{"query": "{AS_TEXT}{CONTROL}{AS_TEXT}"}}'),
        Called("search", {"query": CONTROL}),
        {
            "hermes streamed": NO_JSON,
            "qwen3 whole": Called("search", {"query": CONTROL.removeprefix("<|im_end|>")}),
            "mistral_v11 whole": NO_JSON,
            "mistral_v3 whole": TEXT,
        },
    ),
    _case(
        "special_tokens_themselves_in_an_argument",
        _search('{"query": "a <tool_call> b [TOOL_CALLS] c <|python_tag|> d"}'),
        Called("search", {"query": "a <tool_call> b [TOOL_CALLS] c <|python_tag|> d"}),
        {
            "llama3_json": Called("search", {"query": "a <tool_call> b [TOOL_CALLS] c  d"}),
            "mistral_v11": NO_JSON,
            "mistral_v3 whole": TEXT,
            "mistral_v3 streamed": Called(
                "search", {"query": "a <tool_call> b  c <|python_tag|> d"}
            ),
        },
    ),
    _case(
        "escapes",
        _search('{"query": "\\u00e9 \\ud83d\\ude00"}'),
        Called("search", {"query": "é 😀"}),
    ),
    _case(
        "no_escapes", _search('{"query": "é 😀 日本"}'), Called("search", {"query": "é 😀 日本"})
    ),
    _case(
        "half_a_surrogate_pair",
        _search('{"query": "\\ud83d!"}'),
        Called("search", {"query": "\ufffd!"}),
        LOST
        | {
            family: Refused("surrogates not allowed")
            for family in ("hermes whole", "llama3_json", "mistral_v3 whole")
        },
    ),
]
