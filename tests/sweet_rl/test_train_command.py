"""`memserver train` as it is typed."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from memserver.cli.main import app
from memserver.errors import InvalidInput, SetupError
from sweet_rl.recipe import load_recipe
from sweet_rl.resumable import OutOfTime
from sweet_rl.runs.units import units_of
from tests.support.nightly import NIGHTLY

RECIPES = Path(__file__).parents[2] / "recipes"
SMALL = """
name: small
base: none
seeds: [1]
tasks: {train: 6, validation: 1, test: 2, spare_turns: 2}
sampling: {max_tokens: 8, at_once: 8}
warm_start: {tasks: 6, samples: 1, steps: 3, batch: 4, rate: 1e-2}
collect: {samples: 4, by: scripted}
rft: {steps: 1, batch: 4}
rft_matched: {steps: 1, batch: 4}
mdpo: {steps: 2, batch: 4, rate: 1e-2}
critic: {steps: 2, batch: 4, rate: 1e-2, held_out: 0.55}
candidates: {share: 0.2, count: 4}
rank: {batch_tokens: 4096}
actor: {steps: 2, batch: 4, rate: 1e-2, pairs: 1}
grid: {temperatures: [0], spare_turns: [1], tasks: 1, rounds: 1}
values: {states: 2, candidates: 2, samples: 2}
variants:
  regression-head: {critic: {loss: regression}}
  no-hidden: {critic: {hidden: false}}
"""


def train(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["train", *map(str, arguments)])


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL, encoding="utf-8")
    return path


def test_list_shows_every_unit_without_a_model(recipe: Path, tmp_path: Path) -> None:
    shown = train("list", "-r", recipe, "-o", tmp_path / "run")
    assert shown.exit_code == 0
    for unit in units_of(load_recipe(recipe)):
        assert unit.path in shown.output
    assert shown.output.count("to do") == len(units_of(load_recipe(recipe)))


def test_an_unknown_recipe_is_an_error_that_names_ours(tmp_path: Path) -> None:
    shown = train("list", "-r", "nope", "-o", tmp_path / "run")
    assert isinstance(shown.exception, InvalidInput)
    assert shown.exception.hint == (
        "Name a YAML file, or one of ours: colbench-long, colbench-long-gate, paper-8b, smoke, tiny, tiny-tuning."
    )


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        (("paint",), InvalidInput, "no stage paint"),
        (("all", "--from", "paint"), InvalidInput, "no stage paint"),
        (("all", "--seed", "9"), InvalidInput, "no seed 9"),
        (("all", "--set", "actor"), InvalidInput, "key=value"),
        (("all", "--set", "actor.colour=1"), InvalidInput, "actor.colour"),
        (("all", "--base", "/nowhere"), SetupError, "no model in /nowhere"),
        (("all", "--jobs", "2", "--gpus", "2"), InvalidInput, "can't both be more than 1"),
        (("report",), InvalidInput, "nothing done"),
        (("export",), InvalidInput, "nothing collected"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(
    recipe: Path, tmp_path: Path, arguments: tuple[str, ...], error: type[Exception], told: str
) -> None:
    shown = train(*arguments, "-r", recipe, "-o", tmp_path / "run")
    assert isinstance(shown.exception, error)
    assert told in str(shown.exception)
    assert not (tmp_path / "run").exists()


def test_a_time_limit_that_is_over_is_told_by_the_exit_status(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object, **__: object) -> list[object]:
        raise OutOfTime("The time is over.", hint="Go on.")

    monkeypatch.setattr("sweet_rl.cli.commands.run_units", stopped)
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "config.json").write_text("{}")
    wanted = ("-r", recipe, "-o", tmp_path / "run", "--base", tmp_path / "base")
    shown = train("all", *wanted, "--seconds", "5", "--sampler", "transformers")
    assert shown.exit_code == 3
    assert "Go on." in shown.output
    note = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))
    assert note["recipe"]["name"] == "small"


@pytest.mark.slow
@pytest.mark.skipif(not NIGHTLY, reason="takes minutes; test_long_run trains each arm by day")
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_a_whole_recipe_is_trained_with_a_tiny_model_and_reported(
    recipe: Path, tmp_path: Path, tiny_base: Path
) -> None:
    wanted = ("-r", recipe, "-o", tmp_path / "run", "--base", tiny_base)
    shown = train("all", *wanted, "--sampler", "transformers")
    assert shown.exception is None, shown.output
    report = (tmp_path / "run" / "report" / "report.md").read_text(encoding="utf-8")
    for name in ("zero-shot", "single", "rft-matched", "mdpo", "sweet", "regression-head"):
        assert f"| {name} |" in report
    results = json.loads((tmp_path / "run" / "report" / "results.json").read_text("utf-8"))
    assert not results["missing"]
    assert results["curves"].keys() >= {"shared/warm-start", "seed-1/mdpo", "seed-1/actor"}
    assert results["rewards"].keys() >= {"seed-1/mdpo", "seed-1/critic", "seed-1/actor"}
    assert (tmp_path / "run" / "report" / "rewards.png").stat().st_size > 10_000
    units = results["units"]
    assert units["seed-1/critic"]["figures"]["held_out_pairs"] > 0
    ranked = units["seed-1/rank"]["figures"]
    assert ranked["finished"]
    assert ranked["agreement"] is None, "to the oracle all that a random model says is idle"
    assert ranked["by_kind"] == {}
    assert ranked["held_out"] == {name: ranked[name] for name in ranked["held_out"]}, "none in both"
    worth = units["seed-1/values"]["figures"]["rank_correlation"]
    assert {
        "critic",
        "critic of no-hidden",
        "multi-turn DPO's implicit reward",
        "oracle",
    } <= worth.keys()
    assert [row["policy"] for row in results["grid"]["rows"]][:2] == ["warm-start", "rft"]
    adapters = list((tmp_path / "run").glob("*/*/adapter/adapter_model.safetensors"))
    assert len(adapters) == 10
    config = json.loads((adapters[0].parent / "adapter_config.json").read_text("utf-8"))
    assert config["base_model_name_or_path"] == "none", "the recipe's word for it"
    again = train("all", *wanted, "--sampler", "transformers")
    assert "all done that was asked for (0 now)" in again.output


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_units_run_side_by_side_in_processes_of_their_own(
    recipe: Path, tmp_path: Path, tiny_base: Path
) -> None:
    out = tmp_path / "run"
    wanted = ("-r", recipe, "-o", out, "--base", tiny_base, "--sampler", "transformers")
    changed = ("--set", "warm_start=null", "--jobs", 2)
    names = ("shared/collect", "seed-1/rft")
    shown = train("all", *wanted, *changed, *(word for name in names for word in ("--only", name)))
    assert shown.exception is None, shown.output
    for name in names:
        assert f"{name}: done in" in shown.output
        assert (out / name / "done.json").exists()
        assert name in (out / "logs" / f"{name.replace('/', '-')}.log").read_text(encoding="utf-8")
    assert not (out / "report").exists(), "single units were asked for"
