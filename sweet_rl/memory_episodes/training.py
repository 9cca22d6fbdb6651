"""The trainings of the arms: what each learns from, by which loss, and its figures."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from memserver.errors import Conflict, InvalidInput
from sweet_rl import adapters
from sweet_rl.memory_episodes.examples import (
    Example,
    Plays,
    Tokenizer,
    examples_of_plays,
    examples_of_states,
    examples_to_imitate,
)
from sweet_rl.memory_episodes.layout import Arm, Run
from sweet_rl.memory_episodes.learning import (
    Imitation,
    PreferenceSettings,
    scores_by_example,
    with_references,
)
from sweet_rl.memory_episodes.records import Kept, Ordered, Preferred
from sweet_rl.pairs import is_held_out
from sweet_rl.warm_start.fitting import Schedule, fit

MOST_BYTES = 20 * 2**20
HELD_OUT = 0.15
"""Of the tasks, on whose pairs a critic's accuracy is measured."""


@dataclass(frozen=True, slots=True)
class EpisodeRecipe:
    epochs: float  # at most
    batch: int  # examples in a step: plays, tasks or states
    rate: float  # the highest learning rate
    beta: float = 0.1  # see `Preference`
    nll: float = 0.0  # see `Preference`
    rank: int = 16  # of a new adapter, where there is none to start from


RECIPES: dict[Arm, EpisodeRecipe] = {
    "rft": EpisodeRecipe(2, 8, 1e-4),
    "mdpo": EpisodeRecipe(1, 2, 1e-4, beta=0.05, nll=1.0),
    "critic": EpisodeRecipe(1, 2, 1e-4, beta=0.3),
    "critic-blind": EpisodeRecipe(1, 2, 1e-4, beta=0.3),
    "sweet": EpisodeRecipe(2, 8, 1e-4, beta=0.3, nll=1.0),
    "sweet-blind": EpisodeRecipe(2, 8, 1e-4, beta=0.3, nll=1.0),
}


@dataclass(frozen=True, slots=True)
class Start:
    base: Path  # the folder of the model
    # that is trained on, and as it is the reference; None: a new one, and the base
    adapter: Path | None
    seed: int  # of the order, and of what the arm learns from
    seconds: float | None = None  # that it may take


def train(run: Run, arm: Arm, start: Start, recipe: EpisodeRecipe) -> dict[str, Any]:
    """Train an arm and write its adapter; returns the figures. One that was killed resumes."""
    out, began = run.arm(arm, start.seed), time.monotonic()
    _claim(out, {"recipe": asdict(recipe), "adapter": str(start.adapter)})
    tokenizer = AutoTokenizer.from_pretrained(start.base)
    examples, held_out = _examples(run, arm, start.seed, tokenizer)
    if not examples:
        raise InvalidInput(
            f"There is nothing that {arm} could learn from: {run.data(arm, start.seed)}"
        )
    model = adapters.to_train(
        adapters.load_base(start.base), start.adapter, rank=recipe.rank, seed=start.seed
    )
    if arm != "rft":
        examples, held_out = (with_references(model, each) for each in (examples, held_out))
    left = None if start.seconds is None else start.seconds - (time.monotonic() - began)
    steps = max(1, round(recipe.epochs * len(examples) / recipe.batch))
    schedule = Schedule(steps, recipe.batch, recipe.rate, left, start.seed)
    learning = Imitation() if arm == "rft" else PreferenceSettings(recipe.beta, recipe.nll)
    fitted = fit(model, examples, out / "training.pt", schedule, learning)
    figures = {
        "examples": len(examples),
        "tokens_an_epoch": sum(each.tokens for each in examples),
        "steps": fitted.steps,
        "losses": fitted.losses,
        **_accuracy(model, held_out),
        "seconds": round(time.monotonic() - began, 1),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "recipe": asdict(recipe),
    }
    adapters.save(model, out / "adapter", base=start.base.name)
    figures["bytes"] = (out / "adapter" / adapters.WEIGHTS).stat().st_size
    if figures["bytes"] > MOST_BYTES:
        raise InvalidInput(f"{out} has an adapter of more than {MOST_BYTES:,} bytes.")
    (out / "figures.json").write_text(json.dumps(figures, indent=1), encoding="utf-8")
    return figures


def _examples(
    run: Run, arm: Arm, seed: int, tokenizer: Tokenizer
) -> tuple[list[Example], list[Example]]:
    file = run.data(arm, seed)
    if arm in ("sweet", "sweet-blind"):
        return examples_of_states(run.read(file, Ordered), tokenizer), []
    plays: Plays = {each.key: each.episode for each in run.plays()}
    if arm == "rft":
        return examples_to_imitate(run.read(file, Kept), plays, tokenizer), []
    pairs = run.read(file, Preferred)
    if arm == "mdpo":
        return examples_of_plays(pairs, plays, tokenizer), []
    informed = {task.id: task for task in run.tasks()} if arm == "critic" else {}
    learnt, tried = (
        examples_of_plays(
            [each for each in pairs if is_held_out(each.task, HELD_OUT) == held_out],
            plays,
            tokenizer,
            informed=informed,
            mean=True,
        )
        for held_out in (False, True)
    )
    return learnt, tried


def _accuracy(model: adapters.Model, examples: Sequence[Example]) -> dict[str, Any]:
    """How often the better play of a pair that was not learnt has the higher score; ties count half."""
    if not examples:
        return {}
    right: list[float] = []
    for example, gained in zip(examples, scores_by_example(model, examples), strict=True):
        own = [one - other for one, other in zip(gained, example.references, strict=True)]
        right += [(own[a] > own[b]) + 0.5 * (own[a] == own[b]) for a, b in example.pairs]
    return {"held_out_pairs": len(right), "held_out_accuracy": sum(right) / len(right)}


def _claim(out: Path, identity: dict[str, Any]) -> None:
    """A folder is one training's: to resume another one's steps would mix two recipes."""
    out.mkdir(parents=True, exist_ok=True)
    file = out / "recipe.json"
    if file.is_file() and json.loads(file.read_text(encoding="utf-8")) != identity:
        raise Conflict(
            f"{out} has a training with another recipe.", hint="Move it away, or give its recipe."
        )
    file.write_text(json.dumps(identity), encoding="utf-8")


def changed(recipe: EpisodeRecipe, given: Mapping[str, Any]) -> EpisodeRecipe:
    return replace(recipe, **{name: value for name, value in given.items() if value is not None})
