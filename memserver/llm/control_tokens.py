"""Text of people, tools and memory that looks like a model's control tokens, made plain text again.

An endpoint renders a prompt as one text and reads the control tokens out of it, wherever they stand: a person's
`<|im_end|>` would end the person's message. Look-alikes are known by the shape that all families share or by name, since
which model is behind an endpoint isn't known. What is stored stays as it was written.
"""

import json
import re
from collections.abc import Iterator
from functools import lru_cache

from memserver.messages import JsonObject, JsonValue

_NAMES = (
    "s|bos|eos|pad|unk|SYS|BOS_TOKEN|EOS_TOKEN|PAD_TOKEN|sop|eop"
    "|(?:start|end)_of_(?:turn|image|audio)|(?:start|end)_function_(?:declaration|call|response)|escape"
    r"|tool_calls?|tool_response|tool_result|think|scratch_pad|unused\d{1,4}"
)
_BRACKETED = (
    "INST|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|SYSTEM_PROMPT|MODEL_SETTINGS|ARGS"
    "|CALL_ID|THINK|IMG|IMG_BREAK|IMG_END|AUDIO|BEGIN_AUDIO|NEXT_AUDIO_TEXT|REPEAT_AUDIO_TEXT"
    "|TRANSCRIBE|STREAMING_PAD|STREAMING_WORD|PREFIX|MIDDLE|SUFFIX|[gs]?MASK|SEP|CLS"
)
_BAR = "[|\uff5c]"  # DeepSeek writes the full-width one
_WORD = r"[^\s<>|\uff5c]{1,64}"
_TAG = re.compile(rf"<(?={_BAR}{_WORD}{_BAR}?>|{_WORD}{_BAR}>|/?(?:{_NAMES})>)")
_BRACKET = re.compile(rf"\[(?=/?(?:{_BRACKETED})\])")
"""Each begins with one character: a pattern of both would be looked for at every place, twenty times as slowly."""


def escape_control_tokens(text: str) -> str:
    """The text with a space in each look-alike: `<|im_end|>` becomes `< |im_end|>`.

    A space, since tokenizers may drop a character without width. `<|` and `|>` alone are left: they
    are operators of some languages.
    """
    if "<" in text:
        text = _TAG.sub("< ", text)
    return _BRACKET.sub("[ ", text) if "[" in text else text


def escape_schema(value: JsonValue) -> JsonValue:
    """A JSON schema with all its texts escaped, names of arguments and choices too; see `restore_arguments`.

    A pattern with a look-alike in it is left out: with a space it would say something else.
    """
    if isinstance(value, str):
        return escape_control_tokens(value)
    if isinstance(value, list):
        return [escape_schema(member) for member in value]
    if not isinstance(value, dict):
        return value
    kept = {
        key: _without_look_alikes(each) if key == "patternProperties" else each
        for key, each in value.items()
        if not (key == "pattern" and isinstance(each, str) and escape_control_tokens(each) != each)
    }
    return {escape_control_tokens(key): escape_schema(each) for key, each in kept.items()}


def restore_arguments(arguments: JsonObject, schema: str) -> JsonObject:
    """A call's arguments with the names and choices as the schema, a JSON text, has them.

    The model has read them escaped, and writes them so.
    """
    originals = _originals(schema)
    return _rename(arguments, originals) if originals else arguments


@lru_cache(maxsize=1024)
def _originals(schema: str) -> dict[str, str]:
    return {
        seen: text
        for text in _texts(json.loads(schema))
        if (seen := escape_control_tokens(text)) != text
    }


def _texts(value: JsonValue) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)


def _rename(value: JsonValue, originals: dict[str, str]) -> JsonValue:
    if isinstance(value, str):
        return originals.get(value, value)
    if isinstance(value, list):
        return [_rename(each, originals) for each in value]
    if not isinstance(value, dict):
        return value
    return {originals.get(key, key): _rename(each, originals) for key, each in value.items()}


def _without_look_alikes(value: JsonValue) -> JsonValue:
    if not isinstance(value, dict):
        return value
    return {key: each for key, each in value.items() if escape_control_tokens(key) == key}
