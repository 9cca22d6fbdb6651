"""Answers to questions about documents: `ANSWER: …, DOCUMENT: …`, or that there is not enough to answer."""

import re

from memserver_evals.scoring.text import contains_substring, normalise

INSUFFICIENT = "INSUFFICIENT INFORMATION"
_NOT_ENOUGH = re.compile(
    r"\b(insufficient|not enough|no) (information|context|evidence)\b"
    r"|\b(documents?|passages?|context) (do|does|did) ?n(o|')?t (contain|mention|provide|say|have|include)\b"
    r"|\b(can ?not|cant|can t|could not|unable to) (be answered|answer|be determined|determine)\b"
    r"|\bnot (mentioned|provided|stated|answerable)\b"
)
_PARTS = re.compile(
    r"ANSWER\s*:\s*(?P<answer>.*?)\s*(?:,?\s*DOCUMENT\s*:\s*(?P<document>.*))?",
    re.DOTALL | re.IGNORECASE,
)


def said_answer(reply: str) -> str:
    """What stands after ANSWER, if the reply has that form; else all of it."""
    start = re.search(r"\bANSWER\s*:", reply, re.IGNORECASE)
    if not start:
        return reply
    found = _PARTS.fullmatch(reply, start.start())
    return found["answer"] if found else reply


def is_insufficient(reply: str) -> bool:
    """Whether the reply says that the documents don't say: by the words asked for, or others of that meaning."""
    return bool(_NOT_ENOUGH.search(normalise(said_answer(reply))))


def nq_accuracy(reply: str, answers: tuple[str, ...]) -> bool:
    """Whether any right answer is a substring of what is said after ANSWER; the document quoted doesn't count."""
    return contains_substring(said_answer(reply), answers)
