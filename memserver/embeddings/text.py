"""Makes any Python text safe to embed. Every embedder passes its input through here."""

from memserver.text import clean

LONGEST = 20_000
"""Characters of a text that are read: models see a few hundred tokens, and tokenizing the rest is waste."""


def embeddable(text: str) -> str:
    """The beginning of the text, without what no tokenizer takes."""
    return clean(text[:LONGEST])
