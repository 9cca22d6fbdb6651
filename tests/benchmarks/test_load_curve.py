"""Turns a second beside what Postgres alone does with the same statements."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.ceiling import Recorded, Transactions, logged
from benchmarks.load_curve import Point, curve, draw, figures, rate, warm_up
from tests.support.nightly import NIGHTLY

AGENT = "01a22b6d-0a59-7000-a20f-c80e05b96cde"
LOG = f"""@memserver_app@LOG:  statement: BEGIN
@memserver_app@LOG:  execute _pg3_1:\x20
\tWITH posted AS (UPDATE agent_state SET x = $2 WHERE id = $1 RETURNING turn)
\tSELECT turn FROM posted
@memserver_app@DETAIL:  Parameters: $1 = '{AGENT}', $2 = NULL
@memserver_owner@LOG:  statement: SELECT 'another'
@memserver_app@LOG:  execute _pg3_2: WITH a AS (SELECT $1::json, $2) SELECT $3
@memserver_app@DETAIL:  Parameters: $1 = '[{{"position":12001,"text":"don''t","none":null}}]', $2 = '12', $3 = 'it''s'
@memserver_app@LOG:  statement: COMMIT
"""


def point(number: int, turns_per_s: float, ceiling: float) -> Point:
    return Point(number, "1 worker", 1, turns_per_s, 10, 20, 6, 0, ceiling, 1, 2, 1.5)


def test_a_turn_from_the_log_becomes_a_script_that_carries_what_differs() -> None:
    recorded = Recorded(logged(LOG), AGENT, "key-1", turn=12, epoch=99, queue_start=1000)
    _, script = recorded.script().split("9000000000000000)\n")
    assert (
        script == """BEGIN;
WITH posted AS (UPDATE agent_state SET x = NULL WHERE id = :agent RETURNING turn)
\tSELECT turn FROM posted
\\gset
\\set until :turn * 1000
\\set position :until + 1
WITH a AS (SELECT replace('[{"position": 12001, "text": "don''t", "none": null}]', '12001', :position)::json, :turn)"""
        """ SELECT 'it''s'
\\gset
COMMIT;
"""
    )


def test_what_ends_in_the_warm_up_or_after_the_time_is_not_counted() -> None:
    start = warm_up(1)
    ended = [0.5, start + 0.75, start + 1.5, start + 2.5]
    assert rate(Transactions(ended, [0.5, 0.1, 0.3, 0.2]), 1, seconds=2) == (1, 200, 290)


def test_a_share_is_of_the_ceiling_in_the_same_round() -> None:
    [row] = figures([point(0, 50, 100), point(1, 30, 50), point(2, 10, 100)])
    assert (row["share"], row["share_low"], row["share_high"]) == (0.5, 0.1, 0.6)
    assert (row["turns_per_s"], row["ceiling_turns_per_s"], row["rounds"]) == (30, 100, 3)


def test_a_run_resumes_from_the_figures_that_it_has(tmp_path: Path) -> None:
    out = tmp_path / "points.jsonl"
    out.write_text(json.dumps(asdict(point(0, 50, 100))) + "\n")
    found = curve([1], 1, 1, Console(quiet=True), out, setups=["1 worker"])
    assert found == [point(0, 50, 100)]


@pytest.mark.skipif(not NIGHTLY, reason="takes most of a minute: make nightly")
def test_one_client_is_measured_beside_pgbench_which_writes_whole_turns(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra `eval` has it")
    points = curve([1], 1, 1, Console(quiet=True), setups=["1 worker"])
    [row] = figures(points)
    assert row["errors"] == 0
    assert row["turns_per_s"] > 0
    assert row["ceiling_turns_per_s"] > 0
    assert row["cpu_ms"] > 0
    draw([row], tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
