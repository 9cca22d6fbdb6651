"""A data folder for the tasks of the evaluations."""

from pathlib import Path

import pytest

from tests.memserver_evals import rows


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder with invented rows under the names of the real files."""
    rows.lines(tmp_path / "msc.jsonl", [rows.msc(), rows.msc("made_1", dmr=None, opener=None)])
    rows.lines(tmp_path / "nq_open.jsonl", [rows.nq_question(), rows.nq_question_without_own("q1")])
    rows.lines(tmp_path / "nq_passages.jsonl", rows.nq_passages())
    rows.document(tmp_path / "locomo10.json", [rows.locomo()])
    rows.lines(tmp_path / "longmemeval_evidence.jsonl", [rows.longmemeval_evidence()])
    rows.lines(
        tmp_path / "nested_kv.jsonl",
        [{"id": "k", "nesting_level": 1, "indices": [0, 1], "query_key": "a", "answer": "d"}],
    )
    rows.document(tmp_path / "nested_kv_base.json", {"kv_pairs": [["a", "b"], ["c", "d"]]})
    rows.lines(tmp_path / "own.jsonl", [rows.own()])
    return tmp_path
