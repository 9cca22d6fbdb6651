"""Where sentences begin. Apart from `parse`, whose libraries a server loads in another process only."""

import sentencex

from memserver.memory.parsing.base import SHORTEST_SENTENCE

LANGUAGES = {
    "arabic": "ar",
    "armenian": "hy",
    "basque": "eu",
    "catalan": "ca",
    "danish": "da",
    "dutch": "nl",
    "english": "en",
    "estonian": "et",
    "finnish": "fi",
    "french": "fr",
    "german": "de",
    "greek": "el",
    "hindi": "hi",
    "hungarian": "hu",
    "indonesian": "id",
    "irish": "ga",
    "italian": "it",
    "lithuanian": "lt",
    "nepali": "ne",
    "norwegian": "no",
    "portuguese": "pt",
    "romanian": "ro",
    "russian": "ru",
    "serbian": "sr",
    "spanish": "es",
    "swedish": "sv",
    "tamil": "ta",
    "turkish": "tr",
    "yiddish": "yi",
}
"""Postgres's text search configurations as ISO 639-1 codes."""


_PIECE = 20_000  # characters that are looked at in one go: no other thread runs meanwhile


def sentences(text: str, language: str = "en") -> list[int]:
    """Where the sentences of a text begin; marks of all scripts end one, also in a language not known.

    A long text is looked at in pieces that end with a line or a word, and so with a sentence.
    """
    starts: list[int] = []
    at = 0
    while at < len(text):
        end = _end_of_piece(text, at)
        for sentence in sentencex.get_sentence_boundaries(language, text[at:end]):
            start = at + sentence["start_index"]
            if not starts or start - starts[-1] >= SHORTEST_SENTENCE:
                starts.append(start)
        at = end
    return starts


def _end_of_piece(text: str, at: int) -> int:
    end = at + _PIECE
    if end >= len(text):
        return len(text)
    middle = at + _PIECE // 2
    for mark in ("\n\n", "\n", ". ", " "):
        found = text.rfind(mark, middle, end)
        if found >= 0:
            return found + len(mark)
    return end
