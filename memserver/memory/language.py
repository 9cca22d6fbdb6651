"""Which language a text is in, as Postgres calls it: in what way its words are stemmed."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from memserver.memory.parsing.sentences import LANGUAGES
from memserver.storage.passages import NewPassage

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

LOOKED_AT = 400
"""Characters of a text's beginning: enough to know, and accents out of order take time by the square."""
SURE = 0.5  # how likely a language must be
SURE_OF_OTHERS = 0.8  # how likely it must be that it is none of these
UNSURE = "english"
OTHER = "simple"
CONFIGURATIONS = {
    **{code: name for name, code in LANGUAGES.items()},
    **dict.fromkeys(("arz", "ary"), "arabic"),
    "nn": "norwegian",
}
"""Text search configurations by the codes of the identifier."""


def detect(texts: Sequence[str]) -> list[str]:
    """The language of each text: a text search configuration, OTHER where it has none, UNSURE where it is open."""
    return [_language(text[:LOOKED_AT]) for text in texts]


async def detect_aside(texts: Sequence[str]) -> list[str]:
    return await asyncio.to_thread(detect, texts)


async def with_languages(new: Sequence[NewPassage]) -> list[NewPassage]:
    found = await detect_aside([passage.text for passage in new])
    return [
        replace(passage, language=language) for passage, language in zip(new, found, strict=True)
    ]


def _language(text: str) -> str:
    identifier = _identifier()
    likeliest, share = identifier.classify(text)
    if share >= SURE_OF_OTHERS:
        return CONFIGURATIONS.get(likeliest, OTHER)
    shares: Counter[str] = Counter()
    for language, share in identifier.rank(text):
        shares[CONFIGURATIONS.get(language, OTHER)] += share
    others = shares.pop(OTHER)
    [(best, share)] = shares.most_common(1)
    if share >= SURE:
        return best
    return OTHER if others >= SURE_OF_OTHERS else UNSURE


@cache
def _identifier() -> "LanguageIdentifier":
    from py3langid.langid import MODEL_FILE, LanguageIdentifier  # noqa: PLC0415 - half a second

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
