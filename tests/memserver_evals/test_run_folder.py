"""A run's folder after a kill, and whom it belongs to."""

import json
from pathlib import Path

import pytest

from memserver.errors import Conflict, InvalidInput
from memserver_evals.runs.records import Job, PlayedRecord
from memserver_evals.runs.run_folder import open_run
from memserver_evals.task import Exchange, Found, Played, Reply, Turn

MANIFEST = {"task": "a", "seed": 1}


def record(example: str, text: str = "yes") -> PlayedRecord:
    prompt = ({"role": "user", "content": "Wirklich? \u2028 \U0001f600"},)
    exchange = Exchange(prompt, {"content": text, "tool_calls": None}, 3, 4)
    reply = Reply(text, 3, 4, (exchange,), (Found("d1", "document", "t"),), 0.5)
    return PlayedRecord(
        Job("s", example), Played((Turn("Really?", reply),), {"passed": [True, 1.5]})
    )


def test_a_record_comes_back_from_its_line_as_it_was() -> None:
    kept = record("1")
    assert PlayedRecord.read(kept.line()) == kept
    assert len(kept.line().splitlines()) == 1
    assert PlayedRecord.read(kept.line()).line() == kept.line()


async def test_what_was_played_is_there_when_the_folder_is_opened_again(tmp_path: Path) -> None:
    with open_run(tmp_path, MANIFEST) as folder:
        await folder.add(record("1"), 0.1)
        await folder.add(record("2"), 0.1)
        await folder.add(record("1", "again"), 0.1)
    with open_run(tmp_path, MANIFEST) as folder:
        assert list(folder.done.values()) == [record("1"), record("2")]


@pytest.mark.parametrize("cut", [1, 7, 100])
async def test_half_a_line_at_the_end_is_dropped_and_played_again(tmp_path: Path, cut: int) -> None:
    with open_run(tmp_path, MANIFEST) as folder:
        await folder.add(record("1"), 0.1)
        await folder.add(record("2"), 0.1)
    path = tmp_path / "played.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    with open_run(tmp_path, MANIFEST) as folder:
        assert list(folder.done) == [Job("s", "1")]
        await folder.add(record("2"), 0.1)
    with open_run(tmp_path, MANIFEST) as folder:
        assert list(folder.done.values()) == [record("1"), record("2")]


async def test_a_line_that_is_damaged_in_the_middle_is_named(tmp_path: Path) -> None:
    with open_run(tmp_path, MANIFEST) as folder:
        for name in "123":
            await folder.add(record(name), 0.1)
    path = tmp_path / "played.jsonl"
    kept = path.read_text(encoding="utf-8").split("\n")
    kept[1] = kept[1][:20]
    path.write_text("\n".join(kept), encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"played\.jsonl, line 2"), open_run(tmp_path, MANIFEST):
        pass


async def test_the_lines_are_put_into_the_order_of_the_run(tmp_path: Path) -> None:
    jobs = [Job("s", name) for name in "123"]
    with open_run(tmp_path, MANIFEST) as folder:
        for name in "312":
            await folder.add(record(name), 0.1)
        assert [each.job for each in folder.put_in_order(jobs)] == jobs
    rows = (tmp_path / "played.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(row)["example"] for row in rows] == ["1", "2", "3"]


def test_another_run_is_refused_the_folder_with_the_reason(tmp_path: Path) -> None:
    with open_run(tmp_path, MANIFEST):
        pass
    with (
        pytest.raises(Conflict, match="seed was 1, now 2"),
        open_run(tmp_path, {"task": "a", "seed": 2}),
    ):
        pass


def test_two_processes_can_not_have_the_same_folder(tmp_path: Path) -> None:
    with (
        open_run(tmp_path, MANIFEST),
        pytest.raises(Conflict, match="Another process"),
        open_run(tmp_path, MANIFEST),
    ):
        pass
