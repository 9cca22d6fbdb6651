"""What the multilingual questions promise of themselves."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest

from benchmarks.multilingual import corpora
from benchmarks.multilingual.corpora import LANGUAGES, multilingual_corpora
from benchmarks.retrieval import Result, rows_of

WITHOUT_BLANKS = {"zh", "ja", "th"}
MOST_ALIKE = 5
MARKS = re.compile("[\u0300-\u036f]")
FORMS = {
    "capitals": lambda question, _: (
        question.isupper() and sum(letter.isupper() for letter in question) > 9
    ),
    "decomposed": lambda question, evidence: (
        normalize("NFC", question) != question
        or "\u0e4d\u0e32" in question  # sara am of Thai
        or ("\u093c" in question and re.search("[\u0958-\u095f]", evidence))
    ),
    "full-width": lambda question, _: re.search("[\uff10-\uff5a]", question),
    "half-width kana": lambda question, _: re.search("[\uff66-\uff9d]", question),
    "harakat": lambda question, _: re.search("[\u064b-\u0652]", question),
    "no diacritics": lambda question, evidence: (
        question.isascii() and MARKS.search(normalize("NFD", evidence))
    ),
    "no hamza": lambda question, evidence: set("أإآةؤئ") & set(evidence) - set(question),
    "no ligature": lambda question, evidence: "oe" in question and "œ" in evidence,
    "no nukta": lambda question, evidence: (
        "\u093c" not in normalize("NFD", question) and "\u093c" in normalize("NFD", evidence)
    ),
    "order of marks": lambda question, _: re.search("[\u0e48-\u0e4b][\u0e38\u0e39]", question),
    "presentation forms": lambda question, _: re.search("[\ufe80-\ufefc]", question),
    "radicals": lambda question, _: re.search("[\u2f00-\u2fd5]", question),
    "ss for ß": lambda question, evidence: ("ß" in question) and "ss" in evidence,
    "tatweel": lambda question, _: "\u0640" in question,
    "stress marks": lambda question, _: "\u0301" in question,
    "no ё": lambda question, evidence: "ё" not in question and "ё" in evidence,
}
"""What a question is, or its passage, that is said to be written in this form."""


def rows(code: str) -> list[dict[str, Any]]:
    file = Path(corpora.__file__).with_name(f"{code}.jsonl")
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def patterns(text: str, code: str) -> set[str]:
    """Its stretches of eight characters, or of four words."""
    if code in WITHOUT_BLANKS:
        return {text[start : start + 8] for start in range(len(text) - 7)}
    words = [word.strip(".,:;?!،؟।«»\"'()") for word in text.lower().split()]
    return {" ".join(words[start : start + 4]) for start in range(len(words) - 3)}


@pytest.mark.parametrize("corpus", list(multilingual_corpora()), ids=list(LANGUAGES))
def test_each_language_has_fifty_questions_whose_evidence_is_among_many_passages(corpus) -> None:
    ids = {document.id for document in corpus.documents}
    evidence = {id_ for question in corpus.questions for id_ in question.evidence}
    assert len(corpus.questions) == 50
    assert evidence <= ids
    assert len(ids - evidence) >= 100


@pytest.mark.parametrize("code", LANGUAGES)
def test_nothing_is_there_twice_and_no_pattern_of_sentences_often(code: str) -> None:
    for kind in ("passage", "question"):
        texts = [row[kind] for row in rows(code) if kind in row]
        often = Counter(found for text in texts for found in patterns(text, code))
        assert len(set(texts)) == len(texts)
        assert not {pattern for pattern, times in often.items() if times > MOST_ALIKE}


@pytest.mark.parametrize("code", LANGUAGES)
def test_each_answer_has_others_of_its_topic_beside_it(code: str) -> None:
    topics = {row["id"]: row["topic"] for row in rows(code) if "passage" in row}
    sizes = Counter(topics.values())
    answers = {id_ for row in rows(code) for id_ in row.get("evidence", [])}
    assert {id_ for id_ in answers if sizes[topics[id_]] < 3} == set()


@pytest.mark.parametrize("code", LANGUAGES)
def test_a_sixth_of_the_questions_are_written_in_another_form_than_their_passages(
    code: str,
) -> None:
    passages = {row["id"]: row["passage"] for row in rows(code) if "passage" in row}
    formed = [row for row in rows(code) if "form" in row]
    assert len(formed) >= 50 // 6
    for row in formed:
        [evidence] = row["evidence"]
        assert FORMS[row["form"]](row["question"], passages[evidence]), row["question"]


def test_a_row_stands_for_all_questions_for_those_that_are_hard_and_for_each_language() -> None:
    found = [
        Result(corpus.name, "text", question, [float(not question.hard)] * 4)
        for corpus in multilingual_corpora()
        for question in corpus.questions
    ]
    made = {row["data"]: row for row in rows_of("multilingual", found)}
    assert list(made) == ["multilingual", "multilingual (hard)", *LANGUAGES.values()]
    assert made["multilingual"]["questions"] == 500
    assert made["multilingual (hard)"]["recall_at_10"] == 0
    hard = sum("form" in row for row in rows("th"))
    assert made["Thai"]["recall_at_1"] == pytest.approx(1 - hard / 50)
