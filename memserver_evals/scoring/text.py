"""Does an answer hold what is right: containment, ROUGE-L; and how much of it counts."""

import re
import string
import unicodedata
from collections.abc import Iterable
from functools import cache
from typing import Any

from memserver.errors import SetupError, install_extra

ANSWER_WORDS = 15
"""So many words of an answer count, unless a task says otherwise: pasting all that was found is right too easily."""
_WORD = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*")
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_ASCII_PUNCTUATION = str.maketrans("", "", string.punctuation)
_APOSTROPHE = re.compile(r"['\u2019]s\b|['\u2019]")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_ACCENTS = re.compile(r"[\u0300-\u036f]")
_SENTENCE_END = re.compile(r"[.!?]\s")
_INTERJECTIONS = re.compile(r"^\W*((hm+|oh|well|no|sorry|unfortunately)\b\W*)+", re.IGNORECASE)
_NOT_KNOWN = re.compile(
    r"\b(cant|cannot|can not|couldnt|could not) (find|remember|recall|see|tell|say)\b"
    r"|\b(dont|do not|didnt|did not) (know|remember|recall|find|see|say|mention|tell)\b"
    r"|\b(never|havent|have not|hasnt|has not|not) (\w+ )?(said|say|told|tell|talked|spoken|mentioned|gave|given|come up|came up)\b"
    r"|\bno (idea|mention|record|memory)\b|\bnothing (about|in|on|that|was)\b|\bfound nothing\b"
)


def squad_normalise(text: str) -> str:
    """Lower case, without ASCII punctuation and English articles, single spaces (SQuAD's evaluation)."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_ASCII_PUNCTUATION)).split())


def normalise(text: str) -> str:
    """The words of a text: case, accents, punctuation of any script, possessives and articles don't count.

    Unlike SQuAD's rule it parts words at a hyphen, knows more punctuation than ASCII's, and leaves numbers
    whole: 1,000 is 1000, and 3.5 is not 35. Letters of scripts without case or accents stay as they are.
    """
    plain = _ACCENTS.sub("", unicodedata.normalize("NFKD", text.casefold()))
    plain = _THOUSANDS.sub("", _APOSTROPHE.sub("", plain))
    kept = [sign if _is_kept(plain, place) else " " for place, sign in enumerate(plain)]
    words = " ".join("".join(kept).split())
    return " ".join(_ARTICLES.sub(" ", words).split()) or words


def _is_kept(text: str, place: int) -> bool:
    if text[place] == ".":
        return text[place - 1 : place].isdigit() and text[place + 1 : place + 2].isdigit()
    return unicodedata.category(text[place])[0] not in "PS"


def contains(answer: str, golds: Iterable[str]) -> bool:
    """Whether a right answer stands in the answer, word for word; both normalised.

    Words are whole: 10 does not stand in 101.
    """
    said = f" {normalise(answer)} "
    return any(words and f" {words} " in said for words in map(normalise, golds))


def admits_not_knowing(answer: str) -> bool:
    """Whether the first sentence of an answer, or its first ANSWER_WORDS, says that this can't be known."""
    first, *_ = _SENTENCE_END.split(_INTERJECTIONS.sub("", answer), maxsplit=1)
    return bool(_NOT_KNOWN.search(normalise(first_words(first, ANSWER_WORDS))))


def contains_substring(answer: str, golds: Iterable[str]) -> bool:
    """Whether a right answer is a substring of the answer, both normalised as SQuAD does.

    The accuracy of Lost in the Middle and of the MemGPT paper's document questions (any gold answer is a
    substring). Words may be cut: 10 stands in 101. A right answer of which normalising leaves nothing counts
    only where it stands as it is; as published it would always.
    """
    said = squad_normalise(answer)
    return any(
        words in said if (words := squad_normalise(gold)) else gold.casefold() in answer.casefold()
        for gold in golds
        if gold.strip()
    )


def first_words(text: str, count: int) -> str:
    for number, word in enumerate(_WORD.finditer(text), start=1):
        if number == count:
            return text[: word.end()]
    return text


def count_words(text: str) -> int:
    return len(_WORD.findall(text))


def rouge_l(answer: str, golds: Iterable[str]) -> tuple[float, float]:
    """ROUGE-L recall and precision, each of the right answer that gives most.

    Recall is the share of the right answer's words that come in order; precision that of the answer's.
    By the package rouge-score with Porter's stemmer. It knows only Latin letters and digits.

    Raises SetupError: the package is missing.
    """
    scorer = _rouge_scorer()
    scores = [scorer.score(gold, answer)["rougeL"] for gold in golds]
    return (
        max((each.recall for each in scores), default=0.0),
        max((each.precision for each in scores), default=0.0),
    )


@cache
def _rouge_scorer() -> Any:  # noqa: ANN401 - untyped
    try:
        from rouge_score.rouge_scorer import RougeScorer  # noqa: PLC0415 - of the optional install
    except ImportError as error:
        raise SetupError(
            f"ROUGE-L can't be computed: {error}", hint=install_extra("eval")
        ) from error
    return RougeScorer(["rougeL"], use_stemmer=True)
