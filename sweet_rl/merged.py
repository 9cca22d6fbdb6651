"""A LoRA adapter that is merged into the weights for each step of a training.

On a small model an adapter's own multiplications are many and small, and a GPU waits for the CPU that starts them. Merged, a
layer has one multiplication, as it has without an adapter. The gradient of the merged weights W + s B A gives those of A
and B by the chain rule: s Bᵀ G and s G Aᵀ.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from peft.tuners.lora import Linear
from torch.nn.functional import linear

from sweet_rl.adapters import TRAINED, Model

MOST_WEIGHTS = 10**9
"""Of the layers, in a model that is merged; merged weights and their gradients take eight bytes for each."""


@dataclass(frozen=True, slots=True)
class _Layer:
    module: Linear
    weights: torch.Tensor  # merged, in float32

    @property
    def factors(self) -> tuple[torch.Tensor, torch.Tensor, float]:
        a, b = self.module.lora_A[TRAINED].weight, self.module.lora_B[TRAINED].weight
        return a, b, self.module.scaling[TRAINED]

    def merge(self) -> None:
        a, b, scaling = self.factors
        self.weights.copy_(self.module.base_layer.weight).addmm_(b, a, alpha=scaling)

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
    """What `step` needs of a model with an adapter; a large one, and one without an adapter or with dropout, is left as it is."""

    def __init__(self, model: Model) -> None:
        found = [module for module in model.modules() if _can_merge(module)]
        weights = sum(module.base_layer.weight.numel() for module in found)
        merged = found if weights <= MOST_WEIGHTS else []
        self._layers = [_Layer(module, _like(module)) for module in merged]

    @contextmanager
    def step(self) -> Iterator[None]:
        """The model computes with merged weights; at the end A and B have their gradients."""
        with torch.no_grad():
            for each in self._layers:
                each.merge()
        for each in self._layers:
            each.module.forward = partial(_multiply, each)
        try:
            yield
        finally:
            for each in self._layers:
                del each.module.forward
        with torch.no_grad():
            for each in self._layers:
                each.collect()


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
