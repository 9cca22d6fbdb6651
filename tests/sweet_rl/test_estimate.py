"""What a recipe needs on a GPU, known without one; and a dry run of every stage."""

from dataclasses import replace
from pathlib import Path

import pytest

from memserver.errors import InvalidInput
from sweet_rl.recipe import load_recipe
from tests.support.lazy import lazy
from tests.support.nightly import NIGHTLY
from tests.sweet_rl.templates import CHATML, LLAMA

dry_run = lazy("sweet_rl.dry_run")
estimate = lazy("sweet_rl.estimate")
tiny = lazy("sweet_rl.tiny")
transformers = lazy("transformers")

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning"),
]
PAPER = Path(__file__).parents[2] / "recipes" / "paper-8b.yaml"


@pytest.fixture(scope="module")
def estimator() -> "estimate.Estimator":
    return estimate.Estimator(LLAMA, rank=16)


def test_the_published_model_has_its_known_number_of_parameters(
    estimator: "estimate.Estimator",
) -> None:
    assert estimator.parameters == 8_030_261_248
    assert estimator.adapter_parameters == 41_943_040


def test_memory_grows_with_what_goes_through_at_once(estimator: "estimate.Estimator") -> None:
    load = estimate.Load("mdpo", 2, 2048)
    one = estimator.memory(load)
    assert one.weights == 2 * 8_030_261_248
    assert one.trained == 4 * 5 * 41_943_040, "weights, gradients, two moments, the reference"
    assert one.total > one.weights + one.trained + one.activations
    double = estimator.memory(replace(load, rows=4))
    assert double.activations == pytest.approx(2 * one.activations, rel=1e-6)
    longer = estimator.memory(replace(load, tokens=4096))
    assert longer.attention == 4 * one.attention
    spared = estimator.memory(replace(load, checkpointing=True))
    assert spared.activations < one.activations / 10
    scored = estimator.memory(replace(load, trained=False))
    assert scored.total < spared.total
    whole = estimator.memory(replace(load, full=True))
    assert (whole.weights, whole.trained) == (0, 4 * 5 * 8_030_261_248), "too much for one GPU"


def test_the_papers_recipe_fits_on_one_gpu_of_80_gb() -> None:
    found = {one.load.stage: one for one in estimate.estimate(load_recipe(PAPER), LLAMA)}
    assert list(found) == ["rft", "mdpo", "critic", "actor", "rank"]
    assert all(17e9 < one.total < 80e9 for one in found.values())
    assert found["critic"].load.tokens == 2 * found["rft"].load.tokens, "both sides of a pair"
    assert found["critic"].attention > 0, "a fork has a mask, if there is one row"


@pytest.mark.skipif(not NIGHTLY, reason="the smaller one is done by day: make nightly")
def test_every_stage_of_the_papers_recipe_takes_a_step_on_its_architecture_in_small(
    tmp_path: Path,
) -> None:
    figures = dry_run.dry_run(load_recipe(PAPER), LLAMA, tmp_path)
    assert list(figures) == ["rft", "mdpo", "critic", "rank", "actor"]
    assert all(each["finished"] for each in figures.values())
    assert figures["rank"]["states"] == 12
    assert figures["actor"]["pairs"] == 48


def test_every_stage_of_our_recipe_takes_a_step_on_its_architecture_in_small(
    tmp_path: Path,
) -> None:
    architecture = tmp_path / "architecture"
    transformers.LlamaConfig(
        num_attention_heads=9, num_key_value_heads=3, hidden_size=576
    ).save_pretrained(architecture)
    (architecture / tiny.TEMPLATE).write_text(CHATML, encoding="utf-8")
    figures = dry_run.dry_run(load_recipe(PAPER.with_name("tiny.yaml")), architecture, tmp_path)
    assert all(each["finished"] for each in figures.values())
    assert figures["actor"]["pairs"] > 0, "the critic has learnt, and tells candidates apart"


@pytest.mark.parametrize(("heads", "keys"), [(9, 3), (14, 2), (16, 16), (32, 4)])
def test_a_dry_run_takes_any_number_of_heads(tmp_path: Path, heads: int, keys: int) -> None:
    architecture = tmp_path / "architecture"
    transformers.LlamaConfig(
        hidden_size=64 * heads, num_attention_heads=heads, num_key_value_heads=keys
    ).save_pretrained(architecture)
    (architecture / tiny.TEMPLATE).write_text(CHATML, encoding="utf-8")
    small = transformers.AutoConfig.from_pretrained(
        tiny.write_tiny(architecture, tmp_path / "small")
    )
    assert small.num_attention_heads / small.num_key_value_heads == heads / keys


def test_a_folder_without_an_architecture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="describes no architecture"):
        estimate.Estimator(tmp_path, rank=4)
    with pytest.raises(InvalidInput, match="describes no architecture"):
        dry_run.dry_run(load_recipe(PAPER), tmp_path, tmp_path)
