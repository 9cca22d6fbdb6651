"""LoCoMo's score, after the evaluation that was published with it (snap-research/locomo, task_eval).

Stemmed words are compared; a category each has its rule:

- multi-hop (1): right answers and answers are split at commas; each right one gets the best F1 of any answer,
  and the mean counts;
- temporal, open-domain, single-hop (2, 3, 4): F1 of the words; of an open-domain answer only what stands before
  the first semicolon;
- adversarial (5): 1 for an answer that says `no information available` or `not mentioned`, else 0.
"""

import re
import string
from collections import Counter
from functools import cache
from statistics import fmean
from typing import Any

from memserver.errors import SetupError, install_extra

MULTI_HOP, OPEN_DOMAIN, ADVERSARIAL = 1, 3, 5
REFUSALS = ("no information available", "not mentioned")
_DROPPED = re.compile(r"\b(a|an|the|and)\b")
_EXCLUDED = str.maketrans("", "", string.punctuation)


def locomo_f1(answer: str, gold: str, category: int) -> float:
    """The score of an answer, 0 to 1. `gold` is not looked at for adversarial questions.

    Raises SetupError: the package nltk is missing.
    """
    if category == ADVERSARIAL:
        return float(refuses(answer))
    if category == OPEN_DOMAIN:
        gold = gold.split(";")[0]
    if category != MULTI_HOP:
        return _f1(answer, gold)
    answers = [part.strip() for part in answer.split(",")]
    return fmean(max(_f1(part, right.strip()) for part in answers) for right in gold.split(","))


def refuses(answer: str) -> bool:
    """Whether the answer says that the conversation doesn't say."""
    return any(phrase in answer.lower() for phrase in REFUSALS)


def _f1(answer: str, gold: str) -> float:
    said, right = Counter(_stems(answer)), Counter(_stems(gold))
    common = (said & right).total()
    if not common:
        return 0.0
    return 2 * common / (said.total() + right.total())


def _stems(text: str) -> list[str]:
    words = _DROPPED.sub(" ", text.lower().translate(_EXCLUDED)).split()
    return [_stemmer().stem(word) for word in words]


@cache
def _stemmer() -> Any:  # noqa: ANN401 - untyped
    try:
        from nltk.stem.porter import PorterStemmer  # noqa: PLC0415 - of the optional install
    except ImportError as error:
        raise SetupError(
            f"LoCoMo's score can't be computed: {error}", hint=install_extra("eval")
        ) from error
    return PorterStemmer()
