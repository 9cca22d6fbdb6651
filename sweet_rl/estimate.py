"""How much memory a recipe's trainings take on a GPU, and a dry run of them on a tiny model.

The estimate runs the real architecture on torch's meta device, which has shapes and no numbers, and counts
what autograd keeps. It needs no weights: a folder with a config.json will do. A dry run takes one step of
every stage as the recipe has it, on a random model of the same architecture.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM
from trl.kernels.chunked_logprob import TOKEN_CHUNK_SIZE

from memserver.errors import InvalidInput
from sweet_rl.adapters import Model
from sweet_rl.recipe import Preference, Recipe, Training

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
    full: bool = False  # all weights are trained, in float32
    forked: bool = False  # a row has both sides of a pair, and a mask


@dataclass(frozen=True, slots=True)
class Memory:
    load: Load  # what it is for
    weights: int  # of the base, in bf16, unless they are trained
    trained: int  # adapter or weights, in float32, with gradients and Adam's two moments, and the reference's copy
    activations: int  # kept for the gradients, or of one layer where there are none
    attention: int  # the mask of padded rows, or of forked ones
    head: int  # tiles of logits

    @property
    def total(self) -> int:
        parts = self.weights, self.trained, self.activations, self.attention, self.head
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
        trained = self.parameters if load.full else self.adapter_parameters
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
            weights=0 if load.full else 2 * self.parameters,
            trained=4 * copies * trained,
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
            full=part.full,
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
