"""Which tool a called name means, where a model or a server has put something around it.

Known decorations: control tokens and what follows them (`send_message<|channel|>commentary`), a recipient's or a
tag's beginning (`to=functions.x`, `<function=x>`), a namespace (`functions.x`, `default_api:x`, `x/y`,
`mcp__server__x`), a number (`x:0`), words of a channel glued on (`send_messagejson`), quotes and brackets, and
another case or other dashes. A name that fits one tool as it is means that tool; one that could mean several means
none.
"""

import re
from collections.abc import Iterator

from memserver.messages import ToolSpec, ToolSpecs

SPOKEN = "send_message"
"""The tool whose text a person reads."""
MOST_CHARACTERS = 200
"""Of a name that is looked at: a tool's has 64 at most."""
_CHANNEL = re.compile(
    r"<\|channel\|>\s*(?:analysis|commentary|final)?|<\|constrain\|>\s*\w*|\w+\s*=|^(?:functions?|tools?)_",
    re.I,
)
_AROUND = re.compile(
    r"<[|\uff5c/][^<>]*>?|<|[\s>\"'`«»\u201c\u201d\u2018\u2019*\[\]{},;]+|\(\)?|\)|\.+$"
)
_SPACE = re.compile(r"[./:=\\]+|->|__")
_KNOWN = frozenset(
    {
        *("functions", "function", "tools", "tool", "default_api", "api", "call", "invoke"),
        *("tool_call", "function_call", "parameter", "assistant"),
        *("commentary", "analysis", "final", "json", "code"),
    }
)
"""Words that stand around a name and are no name; unless a tool is called so."""
_GLUED = re.compile(r"(?<=\w)[\W_]*(?:json|commentary|analysis|final|assistant|code)$", re.I)


def resolve_name(name: object, tools: ToolSpecs) -> ToolSpec | None:
    if not isinstance(name, str):
        return None
    exact = name.strip()
    for spec in tools:
        if spec.name == exact:
            return spec
    for candidate in _candidates(name[:MOST_CHARACTERS], {spec.name for spec in tools}):
        found = _fitting(candidate, tools)
        if found:
            return found[0] if len(found) == 1 else None
    return None


def is_spoken(name: str, tools: ToolSpecs) -> bool:
    """Whether a name means the tool whose text a person reads."""
    if name.strip() == SPOKEN:
        return True
    meant = resolve_name(name, tools)
    return meant is not None and meant.name == SPOKEN


def _fitting(name: str, tools: ToolSpecs) -> list[ToolSpec]:
    """The tool of this name; else all whose names differ in case and dashes only."""
    folded = _fold(name)
    return [spec for spec in tools if spec.name == name] or [
        spec for spec in tools if folded and _fold(spec.name) == folded
    ]


def _candidates(name: str, offered: set[str]) -> Iterator[str]:
    """What the name may be, from the least taken away to the most; nothing where two tools are named."""
    parts = [part for part in _AROUND.split(_CHANNEL.sub(" ", name)) if part]
    yield "".join(parts)
    words = [part for part in parts if not _is_known(part, offered)]
    if len(words) != 1:
        return
    yield words[0]
    *spaces, last = [each for each in _SPACE.split(words[0]) if not _is_known(each, offered)] or [
        ""
    ]
    if offered.isdisjoint(spaces):
        while last:
            yield last
            shorter = _GLUED.sub("", last)
            last = shorter if shorter != last else ""


def _is_known(word: str, offered: set[str]) -> bool:
    return word not in offered and (not word or word.isdecimal() or word.lower() in _KNOWN)


def _fold(name: str) -> str:
    return re.sub(r"[\s_-]", "", name).casefold()
