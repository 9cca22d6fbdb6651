"""Text of people, tools and memory that looks like a model's control tokens, made plain text again.

An endpoint renders a prompt as one text and reads the control tokens out of it, wherever they stand: a
person's `<|im_end|>` would end the person's message. Owns what counts as a look-alike, by the shape that
all families share or by name, since which model is behind an endpoint isn't known. It happens on the way
to the model; what is stored stays as it was written.
"""

import re

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
_CONTROL = re.compile(
    rf"<(?={_BAR}{_WORD}{_BAR}?>|{_WORD}{_BAR}>|/?(?:{_NAMES})>)|\[(?=/?(?:{_BRACKETED})\])"
)


def defused(text: str) -> str:
    """The text with a space in each look-alike: `<|im_end|>` becomes `< |im_end|>`.

    A space, since tokenizers may drop a character without width. `<|` and `|>` alone are left: they
    are operators of some languages.
    """
    return _CONTROL.sub(lambda found: f"{found[0]} ", text)
