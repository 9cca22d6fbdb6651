"""Text as it should reach a terminal: without control characters, and broken between words."""

import re

from rich.cells import cell_len

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_WORDS = re.compile(r"\n|[^\S\n]+|\S+")


def harmless(text: str) -> str:
    """The text without what a terminal would obey: an agent may repeat what it has read somewhere."""
    return _CONTROL.sub("", text.replace("\r\n", "\n"))


class Wrapping:
    """Breaks text that comes in pieces between words.

    A word that may go on with the next piece is kept until it is whole.
    """

    def __init__(self, width: int, column: int = 0) -> None:
        self._width = width
        self._column = column
        self._word = ""
        self._space = ""

    def feed(self, piece: str) -> str:
        """More text; returns what can be shown now."""
        *whole, rest = _WORDS.findall(self._word + harmless(piece)) or [""]
        if rest.isspace():
            whole, rest = [*whole, rest], ""
        self._word = rest
        return "".join(self._placed(token) for token in whole)

    def flush(self) -> str:
        word, self._word = self._word, ""
        return self._placed(word) if word else ""

    def _placed(self, token: str) -> str:
        if token == "\n":
            self._column, self._space = 0, ""
            return token
        if token.isspace():
            self._space += token
            return ""
        width = cell_len(self._space) + cell_len(token)
        if self._column and self._column + width > self._width:
            self._column, self._space = cell_len(token), ""
            return f"\n{token}"
        shown, self._space = self._space + token, ""
        self._column += width
        return shown
