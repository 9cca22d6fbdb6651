"""The benchmark of recall storage finds what it made, and tells the worst of it."""

import pytest

from benchmarks import recall_history
from benchmarks.recall import TARGETS, Bench, Plan, agreement, kinds, search_all, worst
from benchmarks.recall_history import make_history
from benchmarks.recall_report import table
from benchmarks.recall_vectors import Vectors, add_vectors
from memserver.memory.recall import MOST_RANKED
from memserver.wiring.database import DatabaseUrls
from tests.support.nightly import NIGHTLY
from tests.support.server import OneDatabase

MESSAGES = 3000


@pytest.mark.skipif(not NIGHTLY, reason="takes a quarter of a minute: make nightly")
async def test_every_kind_of_search_is_measured_on_the_history_that_was_made(
    database: OneDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recall_history, "AGENTS", 20)
    stored: list[int] = []
    history = make_history(database.owner, MESSAGES, 7, stored.append)
    vectors = Vectors(7)
    add_vectors(database.owner, history, vectors, stored.append)
    bench = Bench(history, vectors, Plan(MESSAGES, 3, 7, None), lambda: None)
    rows = await search_all(database.app, bench)
    found = {(row["kind"], row["agent"]): row["median_total"] for row in rows}
    figures = worst(rows)
    assert stored[0] == MESSAGES
    assert sum(history.said.values()) == MESSAGES
    assert set(found) == {(kind.name, size) for kind in kinds() for size in ("large", "small")}
    assert found["everything", "large"] == history.said[history.large]
    assert found["meaning", "large"] == min(history.said[history.large], MOST_RANKED)
    assert found["common word", "large"] > 0
    assert figures["p95_ms"] == max(row["p95_ms"] for row in rows if row["target"])
    assert figures["rare_target_ms"] == TARGETS["rare"]
    about = {"kinds": rows, "messages": MESSAGES, "postgres": "18"}
    assert table(about, TARGETS).row_count == len(rows)
    assert await agreement(DatabaseUrls(database.owner, database.app), bench) == 1.0
    with pytest.raises(RuntimeError, match="not empty"):
        make_history(database.owner, MESSAGES, 7, stored.append)


def test_the_same_seed_says_the_same() -> None:
    def said(seed: int) -> list[str]:
        speaker = recall_history.Speaker(seed)
        return [speaker.message() for _ in range(20)]

    assert said(1) == said(1)
    assert said(1) != said(2)
