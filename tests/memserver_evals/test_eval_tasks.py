"""The tasks from the command line to the report, over a real database: what the command shows and keeps."""

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from memserver.errors import BadData, InvalidInput
from memserver.testing.scripted_rules import echo
from memserver_evals.report.plots import families
from memserver_evals.runs.results import Row, tabulate, worst
from memserver_evals.runs.searches import Searches, SearchMeans
from tests.memserver_evals import rows
from tests.memserver_evals.support import endpoints, evaluate, means, results
from tests.support.http_app import Current
from tests.support.server import OneDatabase


def test_the_oracle_finds_what_was_said_in_an_earlier_session(
    folder: Path, database: OneDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("rouge_score")
    out = tmp_path / "run"
    with endpoints(echo, monkeypatch, tmp_path):
        done = evaluate(
            "msc", "--system", "oracle-search", "--system", "full", "--data", str(folder), "--out", str(out), database=database,
        )  # fmt: skip
    assert done.error is None, done.output
    assert means(out, "containment") == {"ten-searches-pasted": 1.0, "full": 0.0}
    assert means(out, "evidence_found")["ten-searches-pasted"] == 1.0
    compared = evaluate("compare", f"{out}:full", f"{out}:oracle-search", "--json")
    assert json.loads(compared.output)["b"].endswith("ten-searches-pasted"), "the old name works"
    assert set(means(out, "judge_string")) == {"ten-searches-pasted", "full"}


def test_an_overheard_conversation_is_searched_by_who_spoke(
    folder: Path, database: OneDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("nltk")
    out = tmp_path / "run"
    with endpoints(echo, monkeypatch, tmp_path):
        done = evaluate(
            "locomo", "--system", "ten-searches-pasted", "--set", "adversarial=without", "--data", str(folder), "--out", str(out), database=database,
        )  # fmt: skip
    assert done.error is None, done.output
    [first, *_] = [json.loads(line) for line in (out / "examples.jsonl").read_text().splitlines()]
    assert "Ada: I sailed to Malta" in first["answer"]


def test_documents_are_searched_and_shown_in_growing_numbers_and_the_curve_is_drawn(
    folder: Path, database: OneDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    with endpoints(echo, monkeypatch, tmp_path):
        done = evaluate(
            "nq", "--system", "ten-searches-pasted", "--system", "retrieval", "--set", "documents=1,2", "--data", str(folder), "--out", str(out), database=database,
        )  # fmt: skip
    assert done.error is None, done.output
    assert means(out, "accuracy@1") == {"ten-searches-pasted": 0.0, "retrieval": 0.0}
    assert means(out, "accuracy_whole") == {"ten-searches-pasted": 1.0, "retrieval": 0.0}
    assert means(out, "gold_found")["ten-searches-pasted"] == 1.0
    assert (out / "curve-accuracy.png").read_bytes().startswith(b"\x89PNG")
    assert "Accuracy at growing numbers" in (out / "report.html").read_text(encoding="utf-8")
    played = [json.loads(line) for line in (out / "played.jsonl").read_text().splitlines()]
    turns = {each["system"]: each["played"]["turns"] for each in played}
    assert (len(turns["ten-searches-pasted"]), len(turns["retrieval"])) == (1, 4)
    shown = [str(each["reply"]["exchanges"][-1]["prompt"]) for each in turns["retrieval"]]
    assert ["made of rock" in each for each in shown].count(True) >= 2


def test_search_alone_needs_no_model_and_no_other_system_can_do_it(
    folder: Path, database: OneDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    asked = ("retrieval", "--data", str(folder), "--out", str(out))
    with endpoints(echo, monkeypatch, tmp_path):
        monkeypatch.delenv("MEMSERVER_LLM_BASE_URL")
        done = evaluate(*asked, database=database)
        refused = evaluate(*asked, "--system", "full", database=database)
    assert done.error is None, done.output
    assert set(means(out, "recall@10")) == {"search-hybrid", "search-vector", "search-text"}
    assert means(out, "recall@20")["search-hybrid"] == 1.0
    by_data = [each["value"] for each in results(out)["groups"]["data"]]
    assert by_data == ["locomo", "msc", "nq", "nq (hard)"]
    assert isinstance(refused.error, InvalidInput)
    assert "search-hybrid" in refused.error.hint


def test_bad_data_is_found_before_anything_is_run(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows.lines(folder / "msc.jsonl", [rows.msc(), rows.msc("made_1", gaps=["soon"])])
    with endpoints(echo, monkeypatch, tmp_path):
        done = evaluate("msc", "--data", str(folder), "--out", str(tmp_path / "run"))
    assert isinstance(done.error, InvalidInput)
    assert done.error.code == "bad_data"
    assert "msc.jsonl, line 2: gaps: 'soon'" in done.error.message
    assert not (tmp_path / "run").exists()


# --- labels and agreement


async def kind_judge(request: Request) -> JSONResponse:
    """Finds all right."""
    message = {"role": "assistant", "content": "Fine.\nCORRECT"}
    return JSONResponse({"choices": [{"index": 0, "message": message}]})


def test_answers_are_labelled_by_hand_and_the_judges_compared_with_the_labels(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    served: str,
    current: Current,
) -> None:
    pytest.importorskip("rouge_score")
    current.app = Starlette(routes=[Route("/v1/chat/completions", kind_judge, methods=["POST"])])
    many = [rows.msc(f"made_{number}") for number in range(5)]
    rows.lines(folder / "msc.jsonl", many)
    out, labels = tmp_path / "run", tmp_path / "labels.jsonl"
    data = ("--data", str(folder))
    with endpoints(echo, monkeypatch, tmp_path):
        assert evaluate("msc", "--system", "full", "--system", "window", *data, "--out", str(out)).error is None  # fmt: skip
    written = evaluate("labels", str(out), str(labels), "--count", "4", *data)
    assert written.error is None, written.output
    answers = [json.loads(line) for line in labels.read_text().splitlines()]
    assert [each["id"].split("/")[1] for each in answers].count("full") == 2
    assert {each["kind"] for each in answers} == {"msc"}
    waiting = evaluate("agreement", str(labels))
    assert isinstance(waiting.error, InvalidInput)
    for each, label in zip(answers, ["wrong", "wrong", "correct", "correct"], strict=True):
        each |= {"label": label, "labelled_by": "the test"}
    rows.lines(labels, answers)
    asked = ("agreement", str(labels), "--judge-url", served, "--judge-model", "kind", "--json")
    done = evaluate(*asked)
    assert done.error is None, done.output
    found: dict[str, Any] = json.loads(done.output)
    assert found["labelled_by"] == "the test"
    assert [(each["judge"], each["share"], each["kappa"]) for each in found["judges"]] == [
        ("string", 0.5, 0.0),
        ("kind", 0.5, 0.0),
    ]
    assert "the test" in evaluate("agreement", str(labels)).output
    for each in answers:
        del each["question"], each["gold"]
    rows.lines(labels, answers)
    again = evaluate("agreement", str(labels), "--json", *data)
    assert json.loads(again.output)["judges"] == found["judges"][:1]
    answers[0]["id"] = "msc/full/nobody"
    rows.lines(labels, answers)
    assert isinstance(evaluate("agreement", str(labels), *data).error, BadData)
    assert isinstance(evaluate("agreement", str(labels), "--judge-url", served).error, InvalidInput)


# --- curves


def test_the_worst_examples_are_none_that_are_right() -> None:
    scores = {"right": 1.0, "half": 0.5, "wrong": 0.0, "unscored": float("nan")}
    rows_ = [
        Row("s", name, {}, name, {"accuracy": value}, 1.0, "a", 1, 1)
        for name, value in scores.items()
    ]
    assert [row.example for row in worst(rows_, "s", "accuracy")] == ["wrong", "half"]


class Measured:
    """As much of a task as tables need."""

    main_score = "accuracy"
    group_keys = ()


def test_scores_at_a_number_are_a_curve_and_no_column() -> None:
    scores = {"accuracy": 1.0, "accuracy@10": 1.0, "accuracy@5": 0.0, "accuracy@all": 0.0, "accuracy_characters@5": 0.0}  # fmt: skip
    row = Row("s", "e", {}, "e", scores, 1.0, "a", 1, 1)
    table = tabulate(Measured(), [row])  # type: ignore[arg-type]
    assert table.scores == ("accuracy",)
    assert list(table.curves["accuracy"]) == ["5", "10", "all"]
    assert table.curves["accuracy"]["10"]["s"].mean == 1
    assert families(table) == {"accuracy": ["accuracy", "accuracy_characters"]}


def test_a_table_says_how_often_was_searched_and_found_automatic_searches_apart() -> None:
    made = [Searches(2, 1, 1, 1), Searches(0, 0, 1, 0), Searches(1, 1, 0, 0), Searches(5, None)]
    rows_ = [
        Row("s", str(number), {}, str(number), {"accuracy": 1.0}, 1.0, "a b", 1, 1, searches=each)
        for number, each in enumerate(made)
    ]
    quiet = Row("t", "0", {}, "0", {"accuracy": 1.0}, 1.0, "", 1, 1)
    table = tabulate(Measured(), [*rows_, quiet])  # type: ignore[arg-type]
    assert table.overall["t"].searches is None
    assert table.overall["s"].answer_words == 2
    searches = table.overall["s"].searches
    assert searches == SearchMeans(2.0, 2 / 3, 0.5, 0.5), "of searches whose evidence is known"
    assert searches.shown() == ("2.00, automatic 0.50", "0.67, automatic 0.50")
    assert SearchMeans(0.0, None, 0.0, None).shown() == ("0.00", "-")
    assert Row.read(json.dumps(rows_[0].as_json())) == rows_[0]
