"""A text that is too long, shown by its head and tail."""

from memserver.llm.base import ChatModel


async def shorten(text: str, tokens: int, limit: int, model: ChatModel, more: str = "") -> str:
    """Head and tail of a text with so many `tokens`, so that it has at most `limit` (at least 32) of the model's.

    `more` says where the whole can be read.
    """
    if tokens <= limit:
        return text
    keep = int(len(text) * limit / tokens)
    for _ in range(16):
        shown = cut_middle(text, keep, f"… [shortened: the whole has {tokens} tokens{more}] …")
        [count] = await model.count_tokens([shown])
        if count <= limit or keep == 0:
            return shown
        keep = keep * min(3 * limit // 4, limit - 16) // count
    return cut_middle(text, 0, "…")


def cut_middle(text: str, keep: int, mark: str) -> str:
    """The first two thirds and the last third of `keep` characters, with a mark between."""
    head = keep * 2 // 3
    tail = keep - head
    return f"{text[:head]} {mark} {text[len(text) - tail :]}" if keep > 0 else mark
