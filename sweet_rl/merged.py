"""A LoRA adapter that is merged into the weights for each step of a training.

On a small model an adapter's own multiplications are many and small, and a GPU waits for the CPU that starts them. Merged, a
layer has one multiplication, as it has without an adapter. The gradient of the merged weights W + s B A gives those of A
and B by the chain rule: s Bᵀ G and s G Aᵀ. They are merged in float32, and rounded to what the layer computes in.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from peft.tuners.lora import Linear
from torch.nn.functional import linear
from transformers import Trainer
from typing_extensions import override

from sweet_rl.adapters import TRAINED, Model

MOST_WEIGHTS = 10**9
"""Of the layers, in a model that is merged; merged weights and their gradients take eight bytes for each, a reference four."""


@dataclass(frozen=True, slots=True)
class _Layer:
    module: Linear
    weights: torch.Tensor  # merged, in float32
    adapter: str | None  # None: the base's weights alone

    @property
    def factors(self) -> tuple[torch.Tensor, torch.Tensor, float]:
        assert self.adapter is not None
        a, b = (each[self.adapter].weight for each in (self.module.lora_A, self.module.lora_B))
        return a, b, self.module.scaling[self.adapter]

    def merge(self) -> None:
        self.weights.copy_(self.module.base_layer.weight)
        if self.adapter is not None:
            a, b, scaling = self.factors
            self.weights.addmm_(b, a, alpha=scaling)

    def collect(self) -> None:
        gradient = self.weights.grad
        if gradient is None:
            return
        a, b, scaling = self.factors
        for factor, own in ((a, b.T @ gradient), (b, gradient @ a.T)):
            own = own.mul_(scaling)
            factor.grad = own if factor.grad is None else factor.grad + own
        self.weights.grad = None


class MergedAdapter:
    """What `step` needs of a model with an adapter; a large one, and one without an adapter or with dropout, is left as it is.

    Args:
        adapter: PEFT's name of it; None: none, though the model has one.
    """

    def __init__(self, model: Model, adapter: str | None = TRAINED) -> None:
        found = [module for module in model.modules() if _can_merge(module)]
        weights = sum(module.base_layer.weight.numel() for module in found)
        merged = found if weights <= MOST_WEIGHTS else []
        self._layers = [_Layer(module, _like(module), adapter) for module in merged]

    @contextmanager
    def step(self) -> Iterator[None]:
        """The model computes with merged weights; at the end A and B have their gradients."""
        with self.merged():
            yield
        with torch.no_grad():
            for each in self._layers:
                each.collect()

    @contextmanager
    def merged(self) -> Iterator[None]:
        """The model computes with merged weights, whatever adapter is active, also within another's `step`."""
        with torch.no_grad():
            for each in self._layers:
                each.merge()
        before = [vars(each.module).get("forward") for each in self._layers]
        for each in self._layers:
            each.module.forward = partial(_multiply, each)
        try:
            yield
        finally:
            for each, forward in zip(self._layers, before, strict=True):
                del each.module.forward
                if forward is not None:
                    each.module.forward = forward


class MergedSteps(Trainer):  # type: ignore[misc]
    """A trainer that computes with merged weights.

    With several processes it doesn't: they add up the gradients that autograd gives A and B.
    """

    @override
    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        with self.with_merged(TRAINED, learnt=True):
            return super().training_step(*args, **kwargs)

    @override
    def prediction_step(self, *args: Any, **kwargs: Any) -> Any:
        with self.with_merged(TRAINED):
            return super().prediction_step(*args, **kwargs)

    def with_merged(
        self, adapter: str | None, *, learnt: bool = False
    ) -> AbstractContextManager[None]:
        """Computes with an adapter, or none; `learnt`: its factors get their gradients."""
        if self.accelerator.num_processes > 1:
            return nullcontext()
        known = self.__dict__.setdefault("_merged", {})
        if adapter not in known:
            model = self.accelerator.unwrap_model(self.model)
            known[adapter] = MergedAdapter(model, adapter)
        found: MergedAdapter = known[adapter]
        return found.step() if learnt else found.merged()


def _multiply(layer: _Layer, x: torch.Tensor) -> torch.Tensor:
    return linear(x, layer.weights.to(x.dtype), layer.module.base_layer.bias)


def _like(module: Linear) -> torch.Tensor:
    return torch.empty_like(module.base_layer.weight, dtype=torch.float32, requires_grad=True)


def _can_merge(module: object) -> bool:
    return (
        isinstance(module, Linear)
        and module.active_adapters == [TRAINED]
        and isinstance(module.lora_dropout[TRAINED], torch.nn.Identity)
        and not module.lora_variant
    )
