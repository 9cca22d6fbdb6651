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


def sentences(text: str, language: str = "en") -> list[int]:
    """Where the sentences of a text begin; marks of all scripts end one, also in a language not known."""
    starts: list[int] = []
    for sentence in sentencex.get_sentence_boundaries(language, text):
        if not starts or sentence["start_index"] - starts[-1] >= SHORTEST_SENTENCE:
            starts.append(sentence["start_index"])
    return starts
