"""The stages of a run and what each needs: a graph of units, made of a recipe alone.

A unit is one stage for one seed and, where a stage has several parts (ablations, policies to evaluate),
one part. What decides its outcome is its settings and those of all that it needs; their hash tells whether
a unit that is done was done with these.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from memserver.messages import JsonObject
from memserver_evals.colbench.backend.scripted import NOISY
from sweet_rl.recipe import MAIN, Recipe
from sweet_rl.task_sets import Split, identity_of

Stage = Literal[
    "warm-start",
    "collect",
    "rft",
    "mdpo",
    "critic",
    "candidates",
    "rank",
    "actor",
    "rft-matched",
    "validate",
    "evaluate",
]
STAGES: dict[Stage, str] = {
    "warm-start": "teach the base the form of a collaboration, by scripted dialogues",
    "collect": "play the training tasks",
    "rft": "rejection fine-tuning: learn what succeeded",
    "mdpo": "multi-turn DPO: prefer what succeeded to what didn't",
    "critic": "SWEET-RL's critic: credit for each turn, knowing the reference code",
    "candidates": "draw several next messages for each turn of some collaborations",
    "rank": "rank the candidates by the critic",
    "actor": "SWEET-RL's policy: prefer what the critic prefers, turn by turn",
    "rft-matched": "rejection fine-tuning that may draw as much as SWEET-RL does",
    "validate": "play the validation tasks with every policy",
    "evaluate": "play the test tasks with every policy",
}
SHARED = "shared"
_NO_MATTER = {"micro_batch", "save_every", "checkpointing", "batch_tokens"}
"""Settings that change how something is computed, and not what."""
ADAPTER = "adapter"


@dataclass(frozen=True)
class Unit:
    stage: Stage  # of which
    seed: int | None  # of its chance; None for what all seeds share
    part: str = ""  # a variant's name, or a policy's; empty for the one of its kind
    needs: "dict[str, Unit]" = field(default_factory=dict)  # by the role that each has here
    settings: JsonObject = field(default_factory=dict)  # what decides its outcome, besides

    @property
    def path(self) -> str:
        owner = SHARED if self.seed is None else f"seed-{self.seed}"
        return f"{owner}/{self.stage}{'.' if self.part else ''}{self.part}"

    @cached_property
    def digest(self) -> str:
        needs = {role: unit.digest for role, unit in self.needs.items()}
        text = json.dumps([self.stage, self.seed, self.settings, needs], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def folder(self, out: Path) -> Path:
        return out / self.path


@dataclass(frozen=True)
class Policy:
    """One that is evaluated: by its name, and by whom it is made (None: the base itself)."""

    name: str
    unit: Unit | None
    seed: int | None


def units_of(recipe: Recipe) -> list[Unit]:
    return list({unit.path: unit for unit in _Graph(recipe).units()}.values())


def policies_of(recipe: Recipe) -> list[Policy]:
    return _Graph(recipe).policies()


class _Graph:
    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._base: JsonObject = {"base": recipe.base, "rank": recipe.rank_of_adapters}

    def units(self) -> list[Unit]:
        """In the order in which they are run: data, then seed by seed, then evaluations."""
        found: list[Unit] = []
        policies = self.policies()
        for policy in policies:
            if policy.unit is not None:
                _add(found, policy.unit)
        found.sort(key=lambda unit: unit.seed is not None)  # stable
        for stage, split in _EVALUATIONS.items():
            found += [self._evaluation(policy, stage, split) for policy in policies]
        return found

    def policies(self) -> list[Policy]:
        recipe = self._recipe
        found = [Policy("zero-shot", None, None), Policy("single", None, None)]
        if recipe.warm_start is not None:
            owners = (None,) if recipe.share_data else recipe.seeds
            found += [
                Policy("warm-start", self._warm_start(seed), self._owner(seed)) for seed in owners
            ]
        for seed in recipe.seeds:
            found.append(Policy("rft", self._rft(seed, ""), seed))
            found.append(Policy("mdpo", self._mdpo(seed, ""), seed))
            found.append(Policy(MAIN, self._actor(seed, MAIN), seed))
            if recipe.rft_matched is not None:
                found.append(Policy("rft-matched", self._rft_matched(seed), seed))
        makers = {MAIN: self._actor, "mdpo": self._mdpo, "rft": self._rft}
        return found + [
            Policy(variant, makers[recipe.variants[variant].of](seed, variant), seed)
            for variant in recipe.variants
            for seed in recipe.seeds_of(variant)
        ]

    def _owner(self, seed: int | None) -> int | None:
        return None if self._recipe.share_data else seed

    def _begin(self, seed: int | None) -> dict[str, Unit]:
        warm_start = self._warm_start(seed)
        return {} if warm_start is None else {"begin": warm_start}

    def _warm_start(self, seed: int | None) -> Unit | None:
        if self._recipe.warm_start is None:
            return None
        settings = self._base | {
            "tasks": identity_of(self._recipe, "warm-start"),
            "training": _settings(self._recipe.warm_start),
        }
        return Unit("warm-start", self._owner(seed), settings=settings)

    def _collect(self, seed: int) -> Unit:
        recipe = self._recipe
        settings: JsonObject = {
            "tasks": identity_of(recipe, "train"),
            "collect": _settings(recipe.collect),
        }
        if recipe.collect.by == "scripted":
            habits = asdict(recipe.warm_start.habits if recipe.warm_start else NOISY)
            return Unit("collect", self._owner(seed), settings=settings | {"habits": habits})
        if recipe.collect.by == "file":
            return Unit("collect", self._owner(seed), settings=settings)
        settings |= self._base | {"sampling": self._sampling()}
        return Unit("collect", self._owner(seed), "", self._begin(seed), settings)

    def _rft(self, seed: int, variant: str) -> Unit:
        settings = _settings(self._recipe.variant(variant).rft)
        return self._trained("rft", seed, {"data": self._collect(seed)}, settings, variant)

    def _mdpo(self, seed: int, variant: str) -> Unit:
        settings = _settings(self._recipe.variant(variant).mdpo)
        return self._trained("mdpo", seed, {"data": self._collect(seed)}, settings, variant)

    def _rft_matched(self, seed: int) -> Unit:
        needs = {"data": self._collect(seed), "candidates": self._candidates(seed)}
        settings = {"sampling": self._sampling(), **_settings(self._recipe.rft_matched)}
        return self._trained("rft-matched", seed, needs, settings)

    def _critic(self, seed: int, variant: str) -> Unit:
        settings = [_settings(self._recipe.variant(name).critic) for name in (variant, MAIN)]
        part = "" if settings[0] == settings[1] else variant
        return self._trained("critic", seed, {"data": self._collect(seed)}, settings[0], part)

    def _candidates(self, seed: int) -> Unit:
        settings = {"candidates": _settings(self._recipe.candidates), "sampling": self._sampling()}
        needs = {"data": self._collect(seed), **self._begin(seed)}
        return Unit("candidates", seed, "", needs, settings)

    def _rank(self, seed: int, variant: str) -> Unit:
        made = []
        for name in (variant, MAIN):
            rank = self._recipe.variant(name).rank
            needs = {"candidates": self._candidates(seed), **self._begin(seed)}
            if rank.by == "critic":
                needs["critic"] = self._critic(seed, name)
            made.append(Unit("rank", seed, "" if name == MAIN else name, needs, _settings(rank)))
        return made[1] if made[0].digest == made[1].digest else made[0]

    def _actor(self, seed: int, variant: str) -> Unit:
        settings = _settings(self._recipe.variant(variant).actor)
        part = "" if variant == MAIN else variant
        return self._trained("actor", seed, {"data": self._rank(seed, variant)}, settings, part)

    def _trained(
        self, stage: Stage, seed: int, needs: dict[str, Unit], settings: JsonObject, part: str = ""
    ) -> Unit:
        return Unit(stage, seed, part, needs | self._begin(seed), settings)

    def _evaluation(self, policy: Policy, stage: Stage, split: Split) -> Unit:
        settings = self._base | {
            "tasks": identity_of(self._recipe, split),
            "sampling": self._sampling(),
            "evaluate": _settings(self._recipe.evaluate),
            "policy": policy.name,
        }
        needs = {} if policy.unit is None else {"policy": policy.unit}
        return Unit(stage, policy.seed, policy.name, needs, settings)

    def _sampling(self) -> JsonObject:
        sampling = self._recipe.sampling
        return {"temperature": sampling.temperature, "max_tokens": sampling.max_tokens}


_EVALUATIONS: dict[Stage, Split] = {"validate": "validation", "evaluate": "test"}


def evaluations(units: Sequence[Unit], stage: Stage) -> list[Unit]:
    return [unit for unit in units if unit.stage == stage]


def _add(found: list[Unit], unit: Unit) -> None:
    for needed in unit.needs.values():
        _add(found, needed)
    if all(unit.path != each.path for each in found):
        found.append(unit)


def _settings(part: object) -> JsonObject:
    dump = part.model_dump(mode="json", exclude=_NO_MATTER)  # type: ignore[attr-defined]
    return dict(dump)
