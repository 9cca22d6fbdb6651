"""Reads the multilingual questions: a corpus for each language."""

import json
from collections.abc import Iterator
from pathlib import Path

from memserver_evals.task import Document
from memserver_evals.tasks.retrieval import Asked, Corpus

NAME = "multilingual"
LANGUAGES = {
    "ar": "Arabic",
    "zh": "Chinese",
    "fr": "French",
    "de": "German",
    "hi": "Hindi",
    "ja": "Japanese",
    "ko": "Korean",
    "ru": "Russian",
    "th": "Thai",
    "tr": "Turkish",
}


def multilingual_corpora() -> Iterator[Corpus]:
    """A corpus for each language; hard are questions written in another form than their passages."""
    for code, language in LANGUAGES.items():
        file = Path(__file__).with_name(f"{code}.jsonl")
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        questions = [row for row in rows if "question" in row]
        yield Corpus(
            language,
            tuple(Document(row["id"], row["passage"]) for row in rows if "passage" in row),
            tuple(
                Asked(f"{code}-{n}", row["question"], frozenset(row["evidence"]), "form" in row)
                for n, row in enumerate(questions, start=1)
            ),
        )
