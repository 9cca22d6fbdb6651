"""ColBench's collaborations through `memserver eval`: over HTTP with a memory, and with the model alone."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from memserver.colbench.backend.families import FAMILIES, SlotValue
from memserver.colbench.backend.rules import MARKER
from memserver.colbench.frontend.browser import find_chromium
from memserver.colbench.frontend.layouts import Layout
from memserver.errors import InvalidInput
from memserver.llm.scripted import Step
from memserver.llm.scripted_rules import say
from memserver.messages import PromptMessage, ToolSpec
from tests.evals.support import endpoints, evaluate, lines, means
from tests.support import OneDatabase

_SIGNATURE = re.compile(r"def ([a-z]+)_([a-z]+)\(")


def collaborator(prompt: Sequence[PromptMessage]) -> str:
    """Asks for each slot of the family that the signature names, and then writes the function."""
    heard = [message.text for message in prompt if message.role == "user"]
    start = next(place for place, text in enumerate(heard) if _SIGNATURE.search(text))
    found = _SIGNATURE.search(heard[start])
    assert found is not None
    family = next(family for family in FAMILIES if family.name == found[1])
    told = heard[start + 1 :]
    if len(told) < len(family.slots):
        return f"What is the {family.slots[len(told)].name}?"
    values: dict[str, SlotValue] = {}
    for slot, text in zip(family.slots, told, strict=False):
        number = re.search(r"(?<![\d:-])\d+(?=\.| as )", text)
        named = [choice for choice in slot.choices if re.search(rf"\b{choice}\b", text)]
        values[slot.name] = int(number[0]) if number else named[0]
    return f"{MARKER}\n{family.code(found[2], values)}"


def by_call(prompt: Sequence[PromptMessage], tools: Sequence[ToolSpec]) -> Step:
    return say(collaborator(prompt))


def test_a_collaboration_runs_with_a_memory_over_http_and_with_the_model_alone(
    database: OneDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    with endpoints(by_call, monkeypatch, tmp_path, summary=collaborator):
        done = evaluate(
            *("colbench-backend", "--system", "memserver", "--system", "full"),
            *("--set", "each=4", "--out", str(out)),
            database=database,
        )
    assert done.error is None, done.output
    assert means(out, "success") == {"memserver": 1.0, "full": 1.0}
    for row in lines(out / "played.jsonl"):
        assert len(row["played"]["turns"]) > 3
        assert all(row["played"]["outcome"]["passed"])


def test_single_turn_asks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    with endpoints(by_call, monkeypatch, tmp_path, summary=collaborator):
        done = evaluate(
            *("colbench-backend", "--system", "full", "--set", "each=3", "--set", "single=yes"),
            *("--out", str(out)),
        )
    assert done.error is None, done.output
    assert means(out, "turns") == {"full": 1.0}
    assert means(out, "success") == {"full": 0.0}


@pytest.mark.skipif(find_chromium() is None, reason="there is no Chromium")
def test_pages_are_compared_by_a_measure_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    with endpoints(by_call, monkeypatch, tmp_path, summary=lambda _: Layout().page_text()):
        done = evaluate(
            *("colbench-frontend", "--system", "full", "--set", "each=2", "--set", "turns=2"),
            *("--out", str(out)),
        )
    assert done.error is None, done.output
    assert means(out, "rendered") == {"full": 1.0}
    assert "not CLIP" in (out / "report.html").read_text("utf-8")


def test_a_published_file_needs_somebody_who_plays_the_human(tmp_path: Path) -> None:
    record = {"problem_description": "d", "ground_truth": "x = 1", "test_cases": {"test1": "x"}}
    (tmp_path / "colbench_backend.jsonl").write_text(f"{json.dumps(record)}\n", "utf-8")
    data = ("--data", str(tmp_path))
    for asked, told in (
        (data, "plays the human"),
        (("--set", "human_url=http://x.test/v1"), "together"),
        (("--set", "single=perhaps"), "yes or no"),
        (("--set", "each=none"), "number"),
        (("--set", "split=all"), "train"),
        (("--set", "source=file"), "no data folder"),
        (("--set", "level=1"), "no option"),
    ):
        done = evaluate("colbench-backend", *asked, "--out", str(tmp_path / "run"))
        assert isinstance(done.error, InvalidInput), (asked, done)
        assert told in f"{done.error.message} {done.error.hint}"


def test_both_are_listed_with_what_they_need() -> None:
    done = evaluate("list")
    assert done.error is None
    for told in ("colbench-backend", "colbench-frontend", "Chromium", "human_url"):
        assert told in done.output
