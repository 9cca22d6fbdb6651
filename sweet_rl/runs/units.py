"""The units of a run and what each needs, made of a recipe alone.

A unit is one stage for one seed and, where a stage has several parts (ablations, policies to evaluate), one part. What
decides its outcome is its settings and those of all that it needs; their hash says whether a unit that is done was
done with these.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Literal, get_args

from pydantic import BaseModel

from memserver.errors import InvalidInput
from memserver.messages import JsonObject
from memserver_evals.colbench.backend.scripted import NOISY
from sweet_rl.recipe import MAIN, Gate, Generated, Recipe
from sweet_rl.task_sets import Split, identity_of

# fmt: off
Stage = Literal[
    "warm-start", "collect", "rft", "mdpo", "critic", "candidates", "rank", "actor", "rft-matched", "validate", "evaluate",
    "evaluate-unseen", "grid", "values", "gate-states", "gate-scores",
]
# fmt: on
STAGES: tuple[Stage, ...] = get_args(Stage)
EVALUATED: dict[Stage, Split] = {
    "validate": "validation",
    "evaluate": "test",
    "evaluate-unseen": "unseen",
}
ADAPTER, WEIGHTS = "adapter", "adapter_model.safetensors"
BASE_ALONE = ("zero-shot", "single")
_NO_MATTER = {"micro_batch", "save_every", "checkpointing", "batch_tokens"}
"""Settings that change how something is computed, and not what."""
_LATER: JsonObject = {"vague": 0, "wrong": 0, "most": None, "by_task": False}
_LATER |= {"patience": None, "measure_every": 20}
_LATER |= {"draws": "texts", "absolute_margin": 0, "full": False}
"""Settings that came later, and what they were before: with that, older runs are as this one."""


@dataclass(frozen=True)
class Unit:
    stage: Stage
    seed: int | None  # of its chance; None for what all seeds share
    part: str = ""  # a variant's name, or a policy's; empty for the one of its kind
    needs: "dict[str, Unit]" = field(default_factory=dict)  # by the role that each has here
    settings: JsonObject = field(default_factory=dict)  # what decides its outcome, besides

    @property
    def path(self) -> str:
        owner = "shared" if self.seed is None else f"seed-{self.seed}"
        return f"{owner}/{self.stage}{'.' if self.part else ''}{self.part}"

    @property
    def policy(self) -> str:
        """A part's name without the number of a round."""
        return self.part.partition(".")[0]

    @cached_property
    def digest(self) -> str:
        needs = {role: unit.digest for role, unit in self.needs.items()}
        text = json.dumps([self.stage, self.seed, self.settings, needs], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def folder(self, out: Path) -> Path:
        return out / self.path


@dataclass(frozen=True)
class EvaluatedPolicy:
    name: str
    unit: Unit | None  # that makes it; None: it is the base itself, or kept from elsewhere
    seed: int | None
    settings: JsonObject = field(default_factory=dict)  # what says which one it is, besides


def units_of(recipe: Recipe) -> list[Unit]:
    """All units of a recipe, each after those that it needs: data, then seed by seed, then evaluations."""
    graph = _Graph(recipe)
    training = sorted(graph.units.values(), key=lambda unit: unit.seed is not None)  # stable
    return [*training, *graph.evaluations(), *graph.grid(), *graph.values()]


def policies_of(recipe: Recipe) -> Sequence[EvaluatedPolicy]:
    return _Graph(recipe).policies


class _Graph:
    """The units that train, by their folders, as they are come across from policy to policy."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._base: JsonObject = {"base": recipe.base, "rank": recipe.rank_of_adapters}
        self._sampling = recipe.sampling.model_dump(include={"temperature", "max_tokens"})
        self.units: dict[str, Unit] = {}
        self.policies = [EvaluatedPolicy(name, None, None) for name in BASE_ALONE]
        if recipe.gate is not None:
            self._gate(recipe.seeds[0], recipe.gate)
        for owner in dict.fromkeys(map(self._starter, recipe.seeds)):
            if (warm_start := self._warm_start(owner)) is not None:
                self.policies.append(EvaluatedPolicy("warm-start", warm_start, owner))
        makers: dict[str, Callable[[int, str], Unit]] = {
            "rft": partial(self._from_collected, "rft"),
            "mdpo": partial(self._from_collected, "mdpo"),
            MAIN: self._actor,
        }
        for seed in recipe.seeds:
            for name, make in makers.items():
                self.policies.append(EvaluatedPolicy(name, make(seed, ""), seed))
            if recipe.rft_matched is not None:
                self.policies.append(EvaluatedPolicy("rft-matched", self._rft_matched(seed), seed))
        for name, variant in recipe.variants.items():
            for seed in recipe.seeds_of(name):
                self.policies.append(EvaluatedPolicy(name, makers[variant.of](seed, name), seed))
        for name, folder in recipe.kept.items():
            self.policies.append(EvaluatedPolicy(name, None, None, {"weights": hash_of(folder)}))

    def evaluations(self) -> list[Unit]:
        return [
            Unit(stage, policy.seed, policy.name, needs, settings)
            for stage, split in EVALUATED.items()
            if split != "unseen" or _has_unseen(self._recipe)
            for policy in self.policies
            for needs in ({} if policy.unit is None else {"policy": policy.unit},)
            for settings in (
                self._base
                | {"tasks": identity_of(self._recipe, split), "sampling": self._sampling}
                | {"evaluate": _settings(self._recipe.evaluate), "policy": policy.name}
                | policy.settings,
            )
        ]

    def grid(self) -> list[Unit]:
        """Round by round; what decides a round's outcome is how many tasks it has, not how many rounds there are."""
        recipe = self._recipe.grid
        if recipe is None:
            return []
        settings = self._base | {
            "tasks": identity_of(self._recipe, "warm-start"),
            "max_tokens": self._sampling["max_tokens"],
            "grid": recipe.model_dump(mode="json", exclude={"rounds"}),
        }
        return [
            Unit("grid", policy.seed, f"{policy.name}.{number}", needs, settings | policy.settings)
            for number in range(1, recipe.rounds + 1)
            for policy in self.policies
            if policy.name not in BASE_ALONE
            for needs in ({} if policy.unit is None else {"policy": policy.unit},)
        ]

    def values(self) -> list[Unit]:
        """For each seed one unit, that needs its candidates and all critics' rankings of these."""
        if self._recipe.values is None:
            return []
        made = {(policy.name, policy.seed): policy.unit for policy in self.policies}
        found = []
        for seed in self._recipe.seeds:
            actors = {
                name: unit
                for (name, owner), unit in made.items()
                if owner == seed and unit is not None and unit.stage == "actor"
            }
            ranks = {f"rank {name}": unit.needs["data"] for name, unit in actors.items()}
            needs = {
                "candidates": self._candidates(seed),
                "mdpo": self._from_collected("mdpo", seed, ""),
                **{role: unit for role, unit in ranks.items() if "critic" in unit.needs},
            }
            if (begin := self._warm_start(seed)) is not None:
                needs["begin"] = begin
            settings = {"values": _settings(self._recipe.values), "sampling": self._sampling}
            found.append(Unit("values", seed, "", needs, settings))
        return found

    def _add(
        self, stage: Stage, seed: int | None, part: str, settings: JsonObject, **needs: Unit | None
    ) -> Unit:
        found = {role: unit for role, unit in needs.items() if unit is not None}
        unit = Unit(stage, seed, part, found, settings)
        return self.units.setdefault(unit.path, unit)

    def _owner(self, seed: int | None) -> int | None:
        return None if self._recipe.share_data else seed

    def _starter(self, seed: int | None) -> int | None:
        return None if self._recipe.share_warm_start else self._owner(seed)

    def _warm_start(self, seed: int | None) -> Unit | None:
        """The unit whose adapter training starts from, if there is one."""
        if self._recipe.warm_start is None:
            return None
        settings = self._base | {
            "tasks": identity_of(self._recipe, "warm-start"),
            "training": _settings(self._recipe.warm_start),
        }
        return self._add("warm-start", self._starter(seed), "", settings)

    def _collect(self, seed: int) -> Unit:
        recipe, begin = self._recipe, None
        settings: JsonObject = {
            "tasks": identity_of(recipe, "train"),
            "collect": _settings(recipe.collect),
        }
        if recipe.collect.by == "scripted":
            habits = recipe.warm_start.habits if recipe.warm_start else NOISY
            settings["habits"] = _unless_later(asdict(habits))
        elif recipe.collect.by == "policy":
            settings |= self._base | {"sampling": self._sampling}
            begin = self._warm_start(seed)
        return self._add("collect", self._owner(seed), "", settings, begin=begin)

    def _from_collected(self, stage: Stage, seed: int, variant: str) -> Unit:
        """A unit of rft, mdpo or critic; a critic is the recipe's own where nothing differs."""
        settings = _settings(getattr(self._recipe.variant(variant), stage))
        is_own = stage == "critic" and settings == _settings(self._recipe.critic)
        data, begin = self._collect(seed), self._warm_start(seed)
        return self._add(stage, seed, "" if is_own else variant, settings, data=data, begin=begin)

    def _candidates(self, seed: int) -> Unit:
        settings = {"candidates": _settings(self._recipe.candidates), "sampling": self._sampling}
        data, begin = self._collect(seed), self._warm_start(seed)
        return self._add("candidates", seed, "", settings, data=data, begin=begin)

    def _rft_matched(self, seed: int) -> Unit:
        settings = {"sampling": self._sampling, **_settings(self._recipe.rft_matched)}
        data, drawn = self._collect(seed), self._candidates(seed)
        begin = self._warm_start(seed)
        return self._add(
            "rft-matched", seed, "", settings, data=data, candidates=drawn, begin=begin
        )

    def _rank(self, seed: int, variant: str) -> Unit:
        """The ranking of a variant, which is the recipe's own where nothing differs."""
        rank = self._recipe.variant(variant).rank
        drawn, begin = self._candidates(seed), self._warm_start(seed)
        critic = self._from_collected("critic", seed, variant) if rank.by == "critic" else None
        own = self._rank(seed, "") if variant else None
        if own and (own.settings, own.needs.get("critic")) == (_settings(rank), critic):
            return own
        return self._add(
            "rank", seed, variant, _settings(rank), candidates=drawn, begin=begin, critic=critic
        )

    def _gate(self, seed: int, gate: Gate) -> None:
        """Of critics that learn from so many pairs: smaller ones first, each with its scores of the gate's states."""
        base = self._base | {
            "tasks": identity_of(self._recipe, "validation"),
            "sampling": self._sampling,
            "gate": _settings(gate) | {"count": self._recipe.candidates.count},
        }
        states = self._add("gate-states", seed, "", base, begin=self._warm_start(seed))
        variants = {name: self._recipe.variant(name) for name in self._recipe.variants}
        sizes = {name: each.critic.most for name, each in variants.items() if each.critic.most}
        for name in sorted(sizes, key=sizes.__getitem__):
            critic = self._from_collected("critic", seed, name)
            settings = _settings(variants[name].rank)
            self._add("gate-scores", seed, name, settings, candidates=states, critic=critic)

    def _actor(self, seed: int, variant: str) -> Unit:
        settings = _settings(self._recipe.variant(variant).actor)
        data, begin = self._rank(seed, variant), self._warm_start(seed)
        return self._add("actor", seed, variant, settings, data=data, begin=begin)


def _has_unseen(recipe: Recipe) -> bool:
    return isinstance(recipe.tasks, Generated) and recipe.tasks.unseen > 0


def hash_of(folder: Path) -> str:
    """Of an adapter's weights. Raises InvalidInput: there are none."""
    try:
        return hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise InvalidInput(
            f"{folder} holds no adapter.", hint="Name a folder that a training made."
        ) from error


def _settings(part: BaseModel | None) -> JsonObject:
    assert part is not None
    return _unless_later(part.model_dump(mode="json", exclude=_NO_MATTER))


def _unless_later(settings: JsonObject) -> JsonObject:
    return {
        name: value
        for name, value in settings.items()
        if name not in _LATER or value != _LATER[name]
    }
