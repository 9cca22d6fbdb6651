"""Makes any Python text safe to embed. Every embedder passes its input through here."""

import re

LONGEST = 20_000
"""Characters of a text that are read: models see a few hundred tokens, and tokenizing the rest is waste."""

_UNREADABLE = re.compile("[\x00\ud800-\udfff]")


def embeddable(text: str) -> str:
    """The beginning of the text, without NUL and lone surrogates, which no tokenizer takes."""
    return readable(text[:LONGEST])


def readable(text: str) -> str:
    return _UNREADABLE.sub("\ufffd", text)
