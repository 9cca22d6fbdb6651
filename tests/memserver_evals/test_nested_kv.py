"""Nested key-value: data that is made, data that is read, and what counts as an answer."""

import json
from pathlib import Path

import pytest

from memserver.errors import BadData, InvalidInput
from memserver_evals.task import Played, Reply, Turn
from memserver_evals.tasks import nested_kv
from memserver_evals.tasks.nested_kv import NestedKv, generate, load
from memserver_evals.tasks.registry import TaskOptions


def follow(pairs: dict[str, str], key: str) -> tuple[str, int]:
    steps = 0
    while key in pairs:
        key, steps = pairs[key], steps + 1
    return key, steps


def test_a_made_chain_leads_over_as_many_keys_as_its_level_says() -> None:
    examples = generate(7, each=3, pairs=20)
    assert len({each.id for each in examples}) == 15
    for each in examples:
        assert len(each.pairs) == 20
        assert follow(dict(each.pairs), each.chain[0]) == (each.answer, each.level + 1)
    assert examples == generate(7, each=3, pairs=20)
    assert examples != generate(8, each=3, pairs=20)


def played(text: str) -> Played:
    return Played((Turn("?", Reply(text)),))


def test_only_the_right_value_counts_and_not_a_list_of_all() -> None:
    [example, *_] = [each for each in generate(1, each=1, pairs=8) if each.level == 2]
    task = NestedKv([example])
    for text, accuracy, contained in (
        (f"It is {example.answer.upper()}.", 1, 1),
        (" -> ".join(example.chain), 1, 1),
        (example.chain[1], 0, 0),
        (str(example.pairs), 0, 1),
        ("", 0, 0),
    ):
        assert task.score(example, played(text)) == {"accuracy": accuracy, "contained": contained}
        assert task.reward(example, played(text)) == accuracy


@pytest.fixture
def files(tmp_path: Path) -> Path:
    pairs = [[f"k{number}", f"v{number}"] for number in range(8)]
    (tmp_path / "nested_kv_base.json").write_text(json.dumps({"kv_pairs": pairs}), encoding="utf-8")
    rows = [
        {"id": "a", "nesting_level": 0, "indices": [3], "query_key": "k3", "answer": "v3"},
        {"id": "b", "nesting_level": 2, "indices": [1, 5, 2], "query_key": "k1", "answer": "v2"},
    ]
    text = "".join(f"{json.dumps(row)}\n" for row in rows)
    (tmp_path / "nested_kv.jsonl").write_text(text, encoding="utf-8")
    return tmp_path


def test_files_are_read_and_chains_laid_through_the_pairs(files: Path) -> None:
    [first, second] = load(files)
    assert first.chain == ("k3", "v3")
    assert second.chain == ("k1", "k5", "k2", "v2")
    assert dict(second.pairs)["k1"] == "k5"
    assert follow(dict(second.pairs), "k1") == ("v2", 3)


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ({"answer": "v9"}, "line 2"),
        ({"indices": [1, 5, 99]}, "line 2"),
        ({"indices": [1, 1, 2]}, "line 2"),
        ({"indices": "1"}, "line 2: indices"),
        ({"nesting_level": 1}, "line 2"),
        ({"id": "a"}, 'line 2: "a" is the id'),
        ({"query_key": ""}, "line 2: query_key"),
    ],
)
def test_a_bad_line_is_named(files: Path, change: dict[str, object], reported: str) -> None:
    path = files / "nested_kv.jsonl"
    first, second = path.read_text(encoding="utf-8").splitlines()
    path.write_text(f"{first}\n{json.dumps(json.loads(second) | change)}\n", encoding="utf-8")
    with pytest.raises(BadData, match=reported) as caught:
        load(files)
    assert "nested_kv.jsonl" in caught.value.message


def test_a_missing_file_and_a_bad_option_are_errors_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="nested_kv_base"):
        nested_kv.make(TaskOptions(tmp_path))
    for extra, reported in (
        ({"levels": "3"}, "no option 'levels'"),
        ({"each": "many"}, "each is a number"),
        ({"source": "hub"}, "source"),
        ({"source": "file"}, "no data folder"),
    ):
        with pytest.raises(InvalidInput, match=reported):
            nested_kv.make(TaskOptions(None, 0, extra))
