"""Published tasks in a recipe: which are played when, who plays the human, and trajectories from a file."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from memserver.errors import InvalidInput
from memserver.openai_http.endpoint import Endpoint
from memserver_evals.colbench.backend.generator import generate
from memserver_evals.systems.serving import served
from sweet_rl.progress import Progress
from sweet_rl.recipe import Recipe, load_recipe
from sweet_rl.resumable import Deadline
from sweet_rl.runs.context import RunContext
from sweet_rl.runs.run import Selection, run_units
from sweet_rl.runs.units import units_of
from sweet_rl.task_sets import Environment, Split, make_tasks
from sweet_rl.trajectories import Messages, Trajectory, read_file, write_published
from tests.sweet_rl.conversations import chat
from tests.sweet_rl.sampling_stub import SamplingStub
from tests.sweet_rl.scripted_sampler import ScriptedSource

RECIPE = """
name: published
base: tiny
seeds: [1]
tasks:
  kind: published
  train: train.jsonl
  test: test.jsonl
  train_count: 3
  validation: 2
  test_count: 2
  human: base
  max_turns: 3
warm_start: null
"""
TASKS = [task.example for task in generate("train", 10)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name in ("train", "test"):
        lines = [
            {
                "id": f"{name}{number}",
                "problem_description": task.description,
                "ground_truth": task.reference,
                "test_cases": {f"test{place}": call for place, call in enumerate(task.calls)},
            }
            for number, task in enumerate(TASKS)
        ]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return tmp_path


def published(data: Path, **changes: str) -> Recipe:
    (data / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    return load_recipe(data / "recipe.yaml", changes)


@contextmanager
def unseen(title: str) -> Iterator[Progress]:
    yield lambda done, total: None


def words(messages: Messages, seed: int) -> str:
    return "What for?" if len(messages) == 2 else "I WANT TO ANSWER: x"


def bench(recipe: Recipe, data: Path, around: Environment) -> RunContext:
    source = ScriptedSource(words)
    return RunContext(recipe, data / "run", data / "base", source, around, Deadline(), unseen)


def run(tools: RunContext, wanted: Selection) -> None:
    run_units(units_of(tools.recipe), wanted, tools, lambda *_: None)


@pytest.mark.parametrize(
    ("split", "ids"),
    [
        ("train", ["train0", "train1", "train2"]),
        ("validation", ["train8", "train9"]),
        ("test", ["test0", "test1"]),
    ],
)
def test_validation_tasks_are_never_trained(data: Path, split: Split, ids: list[str]) -> None:
    tasks = make_tasks(published(data), split, data)
    assert [each.id for each in tasks.examples] == ids
    assert tasks.max_turns == 3


def test_what_is_missing_is_said(data: Path) -> None:
    with pytest.raises(InvalidInput, match="in files") as caught:
        make_tasks(published(data), "test")
    assert "--data" in caught.value.hint
    with pytest.raises(InvalidInput, match="no more tasks than validation"):
        make_tasks(published(data, **{"tasks.validation": "10"}), "train", data)
    tools = bench(published(data), data, Environment(data))
    with pytest.raises(InvalidInput, match="endpoint isn't named"):
        run(tools, Selection(stages=("evaluate",), parts=("zero-shot",)))


def test_a_model_plays_the_human_from_the_reference(data: Path) -> None:
    stub = SamplingStub(lambda messages, seed: "For the harvest. <|im_end|>")
    with served(stub.app()) as url:
        around = Environment(data, Endpoint(f"{url}/v1"))
        tools = bench(published(data), data, around)
        run(tools, Selection(stages=("evaluate",), parts=("zero-shot",)))
    plays = read_file(data / "run/shared/evaluate.zero-shot/sampled.jsonl", Trajectory)
    assert [each.task for each in plays] == ["test0", "test1"]
    assert plays[0].messages[3]["content"] == "For the harvest. < |im_end|>"
    assert TASKS[0].reference in stub.asked[0]["messages"][0]["content"]


def test_trajectories_may_come_from_a_published_file(data: Path) -> None:
    said = (TASKS[0].description, "What for?", "This.", "I WANT TO ANSWER: x")
    play = Trajectory(
        task="train0", hidden=TASKS[0].reference, messages=chat(*said), answer="x", reward=0.5
    )
    write_published(data / "offline.jsonl", [play, play], {"train0": TASKS[0]})
    recipe = published(data, **{"collect.by": "file", "collect.file": "offline.jsonl"})
    run(bench(recipe, data, Environment(data)), Selection(stages=("collect",)))
    found = read_file(data / "run/shared/collect/trajectories.jsonl", Trajectory)
    assert [each.sample for each in found] == [0, 1]
    assert "3 messages at most" in found[0].messages[0]["content"]
