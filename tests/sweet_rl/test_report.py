"""The figures of a training run as people look at them."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sweet_rl.warm_start.__main__ import app


def figures(right: float) -> dict[str, object]:
    test = {"right": right, "turns": 4, "by_kind": {"ask": right, "tell": 0.5}, "wrong": []}
    plain = {"chats": 9, "nats_per_token": 1.5, "json_instead_of_text": 0, "distinct_answers": 8}
    return {"values": test, "wordings": test, "kinds": test, "plain_chat": plain}


TRAINING = {
    "steps": 7,
    "epochs": 1.5,
    "chains": 20,
    "seconds": 61.2,
    "device": "a GPU",
    "losses": [[1, 2.0], [7, 0.5]],
}


def test_a_training_run_is_shown_as_a_table_and_drawn(tmp_path: Path) -> None:
    run = {"training": TRAINING, "untrained": figures(0.125), "trained": figures(0.875)}
    (tmp_path / "figures.json").write_text(json.dumps(run), encoding="utf-8")
    shown = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert shown.exit_code == 0, shown.output
    assert "7 steps, 1.5 epochs of 20 chains, 61 s on a GPU" in shown.output
    assert shown.output.count("0.125") == 6
    assert shown.output.count("0.875") == 6
    pytest.importorskip("matplotlib", reason="the extra `eval` has it")
    drawn = CliRunner().invoke(app, ["report", str(tmp_path), "--png", str(tmp_path / "run.png")])
    assert drawn.exit_code == 0, drawn.output
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_without_tests_is_shown_by_its_loss(tmp_path: Path) -> None:
    (tmp_path / "figures.json").write_text(json.dumps({"training": TRAINING}), encoding="utf-8")
    shown = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert shown.exit_code == 0, shown.output
    assert "7 steps" in shown.output
    pytest.importorskip("matplotlib", reason="the extra `eval` has it")
    drawn = CliRunner().invoke(app, ["report", str(tmp_path), "--png", str(tmp_path / "run.png")])
    assert drawn.exit_code == 0, drawn.output
