"""Does an answer hold what is right: exact match, containment, ROUGE-L recall."""

import re
import string
import unicodedata
from collections.abc import Iterable
from functools import cache
from typing import Any

from memserver.errors import SetupError

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_MARKS = ("M",)
_NO_WORDS = ("P", "S")
_EXCLUDED = str.maketrans("", "", string.punctuation)


def squad_normalise(text: str) -> str:
    """Lower case, without ASCII punctuation and English articles, single spaces (SQuAD's evaluation)."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_EXCLUDED)).split())


def normalise(text: str) -> str:
    """The words of a text: case, accents, punctuation of any script, articles and spacing don't count.

    Unlike SQuAD's rule it parts words at a hyphen and knows more punctuation than ASCII's. Letters of scripts
    without case or accents stay as they are.
    """
    taken_apart = unicodedata.normalize("NFKD", text.casefold().replace("'", "").replace("’", ""))
    kept = "".join(
        " " if unicodedata.category(sign).startswith(_NO_WORDS) else sign
        for sign in taken_apart
        if not unicodedata.category(sign).startswith(_MARKS)
    )
    words = " ".join(kept.split())
    return " ".join(_ARTICLES.sub(" ", words).split()) or words


def exact_match(answer: str, golds: Iterable[str]) -> bool:
    """Whether the answer is one of the right ones, normalised as SQuAD does."""
    return squad_normalise(answer) in {squad_normalise(gold) for gold in golds}


def contains(answer: str, golds: Iterable[str]) -> bool:
    """Whether a right answer stands in the answer, word for word; both normalised.

    Words are whole: 10 does not stand in 101.
    """
    said = f" {normalise(answer)} "
    return any(words and f" {words} " in said for words in map(normalise, golds))


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


def rouge_l_recall(answer: str, golds: Iterable[str]) -> float:
    """ROUGE-L recall, of the right answer that gives most: the share of its words that come in order.

    By the package rouge-score with Porter's stemmer. It knows only Latin letters and digits.

    Raises:
        SetupError: the package is missing.
    """
    scorer = _rouge_scorer()
    return max((scorer.score(gold, answer)["rougeL"].recall for gold in golds), default=0.0)


@cache
def _rouge_scorer() -> Any:  # noqa: ANN401 - untyped
    try:
        from rouge_score.rouge_scorer import RougeScorer  # noqa: PLC0415 - of the optional install
    except ImportError as error:
        raise SetupError(
            f"ROUGE-L can't be computed: {error}", hint="Install memserver[eval]."
        ) from error
    return RougeScorer(["rougeL"], use_stemmer=True)
