"""The estimate of tokens beside what real tokenizers count; `token_counts.json` has their counts."""

import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from memserver.llm.estimate import PIECE, estimate
from memserver.text import clean

SAMPLES: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "data" / "token_counts.json").read_text("utf-8")
)
TODAY = ("Llama 3", "Qwen 3", "Gemma 3", "DeepSeek 3", "GPT-4o", "Mistral Tekken")
HOSTILE = [" ", "\x00", "\ud83d", "a\ude00b", "😀", "é", "\u0301", "\U0010ffff", "你", "ש", "\n"]


@pytest.mark.parametrize("kind", SAMPLES)
def test_an_estimate_is_near_what_todays_tokenizers_count_and_rather_above(kind: str) -> None:
    sample = SAMPLES[kind]
    counts = [sample["tokens"][name] for name in TODAY]
    assert 0.9 * median(counts) <= estimate(sample["text"]) <= 1.45 * median(counts)
    assert estimate(sample["text"]) >= min(counts)


def test_over_all_kinds_of_text_the_estimate_errs_upward() -> None:
    ratios = [
        estimate(sample["text"]) / median(sample["tokens"][name] for name in TODAY)
        for sample in SAMPLES.values()
    ]
    assert 1.0 < median(ratios) < 1.25


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_crashes_it_and_none_has_more_tokens_than_bytes(text: str) -> None:
    size = len(clean(text).encode())
    assert estimate(text) <= size
    assert estimate(text * 3000) <= 3000 * size
    assert estimate("") == 0


@pytest.mark.parametrize("padding", [" ", "=", "-", "\n", "\u2500"])
def test_padding_and_rulers_are_a_few_tokens(padding: str) -> None:
    assert estimate(f"before {padding * 2400} after") < 250


def test_a_long_text_has_the_tokens_of_its_parts() -> None:
    text = SAMPLES["English"]["text"] + "\n"
    times = 3 * PIECE // len(text)
    assert estimate(text * times) == pytest.approx(times * estimate(text), rel=0.03)
