"""Recipes: what is wrong in one is told before anything runs, and what a run consists of follows from it."""

from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

from memserver.errors import InvalidInput
from sweet_rl.recipe import Recipe, find_recipe, load_recipe
from sweet_rl.runs.run import Selection
from sweet_rl.runs.units import STAGES, units_of

RECIPES = Path(__file__).parents[2] / "recipes"


def recipe(tmp_path: Path, text: str, **changes: str) -> Recipe:
    path = tmp_path / "recipe.yaml"
    path.write_text("name: one\nbase: model\n" + text, encoding="utf-8")
    return load_recipe(path, changes)


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_recipes_load_and_each_unit_comes_behind_those_that_it_needs(path: Path) -> None:
    found = load_recipe(path)
    assert found.name == path.stem
    seen: set[str] = set()
    for unit in units_of(found):
        assert {needed.path for needed in unit.needs.values()} <= seen
        assert unit.stage in STAGES
        seen.add(unit.path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("actor: {rte: 1}", "actor.rte"),
        ("mdpo: {beta: -1}", "mdpo.beta"),
        ("seeds: []", "seeds"),
        ("seeds: [1, 1]", "twice"),
        ("tasks: {kind: drawn}", "tasks"),
        ("rank_of_adapters: 64", "rank_of_adapters"),
        ("variants: {mdpo: {}}", "variants: mdpo"),
        ("variants: {mine: {critic: {colour: red}}}", "variants.mine.critic: colour"),
        ("variants: {mine: {seeds: [9]}}", "variants.mine.seeds"),
        ("variants: {mine: {mdpo: {beta: 1}, rft: {rate: 1}}}", "it can change one policy"),
        (
            "tasks: {kind: published, train: a, test: b, human: c}",
            "warm_start needs generated tasks",
        ),
        ("collect: {by: file}", "belong together"),
        ("- a list", "no YAML"),
        ("name: 2024-01-01", "recipe.yaml"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        recipe(tmp_path, text)


def test_a_file_that_is_no_recipe_is_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="can't be read"):
        load_recipe(tmp_path / "none.yaml")
    (tmp_path / "list.yaml").write_text("[1]", encoding="utf-8")
    with pytest.raises(InvalidInput, match="mapping"):
        load_recipe(tmp_path / "list.yaml")


def test_ours_are_found_by_name_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").mkdir()  # a run's folder
    for told in ("tiny", "tiny.yaml", "recipes/tiny.yaml"):
        assert load_recipe(find_recipe(Path(told))).name == "tiny"
    (tmp_path / "tiny.yaml").write_text("name: mine\nbase: model", encoding="utf-8")
    assert load_recipe(find_recipe(Path("tiny.yaml"))).name == "mine"
    assert find_recipe(Path("else/tiny.yaml")) == Path("else/tiny.yaml")


def test_every_key_of_a_recipe_is_in_its_page() -> None:
    page = (RECIPES.parent / "sweet_rl" / "README.md").read_text(encoding="utf-8")
    _, _, table = page.partition("## The recipe")

    def keys(part: type[BaseModel]) -> set[str]:
        found: set[str] = set()
        for name, field in part.model_fields.items():
            found.add(name)
            for kind in (field.annotation, *get_args(field.annotation)):
                if isinstance(kind, type) and issubclass(kind, BaseModel):
                    found |= keys(kind)
        return found

    assert {key for key in keys(Recipe) if f"`{key}`" not in table} == set()


def test_the_command_line_changes_single_values(tmp_path: Path) -> None:
    changed = recipe(
        tmp_path,
        "actor: {pairs: 2}",
        **{"actor.rate": "2e-4", "warm_start": "null", "seeds": "[5]"},
    )
    assert (changed.actor.rate, changed.actor.pairs) == (2e-4, 2)
    assert (changed.warm_start, changed.seeds) == (None, (5,))
    with pytest.raises(InvalidInput, match="base has no parts"):
        recipe(tmp_path, "", **{"base.name": "x"})


def test_variants_share_what_they_do_not_change(tmp_path: Path) -> None:
    found = recipe(
        tmp_path,
        yaml.safe_dump(
            {
                "seeds": [1, 2],
                "variants": {
                    "blind": {"seeds": [1], "rank": {"reference_hidden": False}},
                    "same": {"critic": {"hidden": True}},
                    "bold": {"mdpo": {"beta": 1}},
                },
            }
        ),
    )
    paths = [unit.path for unit in units_of(found)]
    assert {"seed-2/mdpo.bold", "seed-2/evaluate.bold"} <= set(paths)
    assert not any("actor.bold" in path or "critic.bold" in path for path in paths)
    assert "seed-1/rank.blind" in paths
    assert "seed-2/rank.blind" not in paths
    assert not any("critic." in path or "rank.same" in path for path in paths)
    assert "seed-2/actor.same" in paths


def test_one_policy_is_made_with_what_it_needs_and_nothing_else() -> None:
    units = units_of(load_recipe(RECIPES / "tiny.yaml"))

    def paths(**wanted: Any) -> set[str]:
        return {unit.path for unit in Selection(**wanted).of(units)}

    made = paths(parts=("no-hidden",))
    assert {"shared/collect", "seed-1/critic.no-hidden", "seed-1/evaluate.no-hidden"} <= made
    assert not {"seed-1/critic", "seed-1/mdpo", "seed-1/actor"} & made
    assert paths(parts=("reference-blind",), stages=("critic", "rank", "actor")) == {
        "seed-1/critic",
        "seed-1/rank.reference-blind",
        "seed-1/actor.reference-blind",
    }
    both = paths(parts=("mdpo", "sweet"), stages=("mdpo", "actor", "validate"), seeds=(2,))
    stages = ("mdpo", "actor", "validate.mdpo", "validate.sweet")
    assert both == {f"seed-2/{stage}" for stage in stages}
    with pytest.raises(InvalidInput, match="no blue") as error:
        paths(parts=("blue",))
    assert "reference-blind" in error.value.hint


def test_all_weights_are_trained_but_the_warm_start_s() -> None:
    full = load_recipe(RECIPES / "tiny.yaml").in_full()
    units = {unit.path: unit for unit in units_of(full)}
    trained = [unit for unit in units.values() if "full" in unit.settings]
    assert {unit.stage for unit in trained} == {"rft", "rft-matched", "mdpo", "critic", "actor"}
    assert all(unit.settings["full"] for unit in trained)
    assert "full" not in units["shared/warm-start"].settings["training"]


def test_what_is_tuned_is_what_the_table_is_made_of() -> None:
    tiny, tuning = (
        {unit.path: unit.digest for unit in units_of(load_recipe(RECIPES / f"{name}.yaml"))}
        for name in ("tiny", "tiny-tuning")
    )
    both = tiny.keys() & tuning.keys()
    assert {"shared/collect", "seed-1/mdpo", "seed-1/rank", "seed-1/validate.sweet"} <= both
    assert {path: tiny[path] for path in both} == {path: tuning[path] for path in both}


def test_only_what_decides_an_outcome_is_in_a_units_digest(tmp_path: Path) -> None:
    def digests(**changes: str) -> dict[str, str]:
        return {unit.path: unit.digest for unit in units_of(recipe(tmp_path, "", **changes))}

    assert digests(**{"actor.micro_batch": "1", "sampling.at_once": "1"}) == digests()
    changed = digests(**{"critic.beta": "0.2"})
    differing = {path for path, digest in digests().items() if changed[path] != digest}
    assert {"seed-1/critic", "seed-1/rank", "seed-1/actor", "seed-1/evaluate.sweet"} <= differing
    assert not any("mdpo" in path or "shared" in path for path in differing)


def test_each_seed_has_data_of_its_own_where_the_recipe_says_so(tmp_path: Path) -> None:
    paths = [unit.path for unit in units_of(recipe(tmp_path, "share_data: false"))]
    assert "seed-2/collect" in paths
    assert "seed-3/evaluate.warm-start" in paths
    assert "shared/collect" not in paths
    assert "shared/warm-start" not in paths


def test_seeds_with_data_of_their_own_may_begin_with_one_warm_start(tmp_path: Path) -> None:
    made = recipe(tmp_path, "share_data: false\nshare_warm_start: true")
    units = {unit.path: unit for unit in units_of(made)}
    assert {"seed-2/collect", "evaluate.warm-start"} <= {
        path.removeprefix("shared/") for path in units
    }
    for path in ("seed-1/collect", "seed-2/collect", "seed-3/mdpo", "seed-3/actor"):
        assert units[path].needs["begin"].path == "shared/warm-start"
    assert not any(path.endswith("warm-start") and path.startswith("seed") for path in units)
