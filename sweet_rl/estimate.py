"""How much memory a recipe's trainings take on a GPU, and a dry run of them on a tiny model.

The estimate runs the real architecture on torch's meta device, which has shapes and no numbers, and counts
what autograd keeps. It needs no weights: a folder with a config.json will do. A dry run takes one step of
every stage as the recipe has it, on a random model of the same architecture.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM
from trl.kernels.chunked_logprob import TOKEN_CHUNK_SIZE

from memserver.errors import InvalidInput
from sweet_rl.adapters import Model
from sweet_rl.pairs import successes, trajectory_pairs, turn_pairs
from sweet_rl.plans import PreferencePlan, Schedule, ScorePlan, SftPlan
from sweet_rl.preferences import train_preferences
from sweet_rl.ranking import rank
from sweet_rl.recipe import Preference, Recipe, Training
from sweet_rl.sft import train_sft
from sweet_rl.tiny import write_tiny
from sweet_rl.training_run import Figures
from sweet_rl.trajectories import Candidates, ChatMessage, Ranked, Trajectory, read_file, write_file

ARCHITECTURES = Path(__file__).parent / "architectures"
GB = 1e9
_CONTEXT = 1_500_000_000
"""Of CUDA, its libraries and what is lost between blocks; a guess."""
_VOCABULARY_TILE = 32_768
_PROBE = (1, 512)


@dataclass(frozen=True, slots=True)
class Load:
    stage: str  # whose
    rows: int  # sequences; at most one for each pair
    tokens: int  # of each, at most
    trained: bool = True  # gradients are taken
    reference: bool = True  # a frozen copy of the adapter is kept
    checkpointing: bool = False  # activations are computed twice
    forked: bool = False  # a row has both sides of a pair, and a mask


@dataclass(frozen=True, slots=True)
class Memory:
    load: Load  # what it is for
    weights: int  # of the base, in bf16
    adapter: int  # float32, with gradients and Adam's two moments, and the reference's copy
    activations: int  # kept for the gradients, or of one layer where there are none
    attention: int  # the mask of padded rows, or of forked ones
    head: int  # tiles of logits

    @property
    def total(self) -> int:
        parts = self.weights, self.adapter, self.activations, self.attention, self.head
        return sum(parts) + _CONTEXT


class Estimator:
    def __init__(self, architecture: Path, *, rank: int) -> None:
        """Build it on the meta device."""
        try:
            self._config = AutoConfig.from_pretrained(architecture)
        except (OSError, ValueError) as error:
            raise InvalidInput(f"{architecture} describes no architecture: {error}") from error
        AttentionInterface.register("counted", _counted_attention)
        with torch.device("meta"):
            base = AutoModelForCausalLM.from_config(
                self._config, dtype=torch.bfloat16, attn_implementation="counted"
            )
            lora = LoraConfig(r=rank, target_modules="all-linear", task_type="CAUSAL_LM")
            self._model = get_peft_model(base, lora)
        self._model.train()
        trained = [each.numel() for each in self._model.parameters() if each.requires_grad]
        self.adapter_parameters = sum(trained)
        whole = sum(each.numel() for each in self._model.parameters())
        self.parameters = whole - self.adapter_parameters
        self._kept = {on: self._kept_for_a_token(checkpointing=on) for on in (False, True)}

    def memory(self, load: Load) -> Memory:
        tokens = load.rows * load.tokens
        copies = 4 * load.trained + load.reference + (not load.trained)
        layers = self._config.num_hidden_layers
        one_layer = self._kept[False] / layers
        if not load.trained:
            activations = one_layer
        elif load.checkpointing:
            activations = self._kept[True] + one_layer
        else:
            activations = self._kept[False]
        tile = min(TOKEN_CHUNK_SIZE, tokens) * min(_VOCABULARY_TILE, self._config.vocab_size)
        return Memory(
            load,
            weights=2 * self.parameters,
            adapter=4 * copies * self.adapter_parameters,
            activations=round(activations * tokens),
            attention=3 * load.rows * load.tokens**2 if load.rows > 1 or load.forked else 0,
            head=4 * tile * (1 + load.trained) + 4 * tokens * self._config.hidden_size,
        )

    def _kept_for_a_token(self, *, checkpointing: bool) -> float:
        rows, tokens = _PROBE
        with _checkpointing(self._model, on=checkpointing), _counted() as kept:
            ids = torch.zeros(rows, tokens, dtype=torch.long, device="meta")
            self._model.get_base_model().base_model(
                input_ids=ids,
                position_ids=ids,
                attention_mask=torch.ones(rows, 1, 1, tokens, dtype=torch.bool, device="meta"),
                use_cache=False,
            )
        own = {each.untyped_storage()._cdata for each in self._model.parameters()}
        return sum(size for key, size in kept.items() if key not in own) / (rows * tokens)


def loads_of(recipe: Recipe) -> list[Load]:
    tokens = recipe.sampling.window
    parts: dict[str, Training | None] = {
        "warm-start": recipe.warm_start,
        "rft": recipe.rft,
        "mdpo": recipe.mdpo,
        "critic": recipe.critic,
        "actor": recipe.actor,
    }
    loads = [
        Load(
            stage,
            part.micro_batch or part.batch,
            tokens * (1 + pairs),
            reference=pairs and recipe.warm_start is not None,
            checkpointing=part.checkpointing,
            forked=pairs,
        )
        for stage, part in parts.items()
        if part is not None
        for pairs in (isinstance(part, Preference),)
    ]
    at_once = max(tokens, recipe.rank.batch_tokens)
    return [*loads, Load("rank", at_once // tokens, tokens, trained=False)]


def estimate(recipe: Recipe, architecture: Path) -> list[Memory]:
    """The memory of each stage, with all sequences as long as the recipe's window: the worst case.

    The sides of a pair then have nothing in common; a model that can't have them in one row takes no more.
    """
    estimator = Estimator(architecture, rank=recipe.rank_of_adapters)
    return [estimator.memory(load) for load in loads_of(recipe)]


def dry_run(recipe: Recipe, architecture: Path, folder: Path) -> dict[str, Figures]:
    """One step of each training of a recipe, and its ranking, on a tiny random model."""
    base = write_tiny(architecture, folder / "base")
    played = _made_up(2 * recipe.collect.samples)
    pairs = trajectory_pairs(played)
    write_file(folder / "successes.jsonl", successes(played))
    write_file(folder / "pairs.jsonl", pairs)
    write_file(folder / "candidates.jsonl", _candidates(played, recipe.candidates.count))

    def preferences(stage: str, part: Preference, data: str, *, hidden: bool) -> Figures:
        return train_preferences(
            PreferencePlan(
                base,
                folder / data,
                folder / stage,
                rank=recipe.rank_of_adapters,
                loss=part.loss,
                beta=part.beta,
                nll=part.nll,
                hidden=hidden,
                schedule=_one_step(part),
            )
        )

    figures = {
        "rft": train_sft(
            SftPlan(
                base,
                folder / "successes.jsonl",
                folder / "rft",
                rank=recipe.rank_of_adapters,
                schedule=_one_step(recipe.rft),
            )
        ),
        "mdpo": preferences("mdpo", recipe.mdpo, "pairs.jsonl", hidden=False),
        "critic": preferences("critic", recipe.critic, "pairs.jsonl", hidden=recipe.critic.hidden),
    }
    plan = ScorePlan(
        base,
        folder / "critic" / "adapter",
        hidden=recipe.critic.hidden,
        reference_hidden=recipe.rank.reference_hidden and recipe.critic.hidden,
        normalised=recipe.rank.normalised,
        batch_tokens=recipe.rank.batch_tokens,
    )
    figures["rank"] = rank(plan, folder / "candidates.jsonl", folder / "ranked.jsonl")
    actor = recipe.actor
    turns = turn_pairs(
        read_file(folder / "ranked.jsonl", Ranked),
        count=actor.pairs,
        margin=actor.margin,
        top=actor.top,
    )
    write_file(folder / "turns.jsonl", turns)
    figures["actor"] = preferences("actor", actor, "turns.jsonl", hidden=False)
    return figures


def _one_step(part: Training) -> Schedule:
    """One that changes something: at a warm-up's first step the rate is 0."""
    return replace(part.schedule(0, None), steps=1, warmup=0)


def _made_up(tasks: int) -> list[Trajectory]:
    return [
        Trajectory(
            task=f"task {number}",
            sample=sample,
            hidden=f"def f(x):\n    return x > {number}",
            messages=tuple(messages),
            answer=answer,
            reward=reward,
        )
        for number in range(tasks)
        for sample, (answer, reward) in enumerate(((f"x > {number}", 1.0), ("x > 0.5", 0.0)))
        for messages in (_talk(number, answer, asks=reward == 1),)
    ]


def _talk(number: int, answer: str, *, asks: bool) -> Iterator[ChatMessage]:
    yield {"role": "system", "content": "Ask, then answer."}
    yield {"role": "user", "content": "Say whether x is over the limit."}
    if asks:
        yield {"role": "assistant", "content": "What is the limit?"}
        yield {"role": "user", "content": f"It is {number}."}
    yield {"role": "assistant", "content": f"I WANT TO ANSWER:\nreturn {answer}"}


def _candidates(played: list[Trajectory], count: int) -> list[Candidates]:
    return [
        Candidates(
            task=each.task,
            sample=each.sample,
            hidden=each.hidden,
            turn=0,
            messages=each.before(0),
            candidates=tuple(f"What is number {number}?" for number in range(count)),
        )
        for each in played
    ]


class _Flash(torch.autograd.Function):  # type: ignore[misc]
    """Keeps what a fused attention kernel keeps; it is never run backwards."""

    @staticmethod
    def forward(context: Any, query: Any, key: Any, value: Any) -> Any:  # noqa: ANN401
        out = torch.empty_like(query)
        sums = torch.empty(query.shape[:3], dtype=torch.float32, device=query.device)
        context.save_for_backward(query, key, value, out, sums)
        return out


def _counted_attention(
    module: Any,  # noqa: ANN401, ARG001
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any,  # noqa: ANN401, ARG001
    **_: Any,  # noqa: ANN401
) -> tuple[torch.Tensor, None]:
    return _Flash.apply(query, key, value).transpose(1, 2).contiguous(), None


@contextmanager
def _checkpointing(model: Model, *, on: bool) -> Iterator[None]:
    base = model.get_base_model()
    if on:
        base.gradient_checkpointing_enable()
        base.enable_input_require_grads()
    yield
    if on:
        base.gradient_checkpointing_disable()
        base.disable_input_require_grads()


@contextmanager
def _counted() -> Iterator[dict[int, int]]:
    found: dict[int, int] = {}
    alive = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        found[storage._cdata] = storage.nbytes()
        alive.append(tensor)  # so that no key is used twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield found
