"""Adapters between two: weights on the line from the one that a training began with to the one that it made.

A training on new lessons also unlearns a part of what its start could do. Weights between the two often keep more of both
than either has (WiSE-FT, arXiv 2109.01903).
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from memserver.errors import InvalidInput
from sweet_rl.adapters import WEIGHTS, checked

_CONFIG = "adapter_config.json"
_FIRST = "lora_A"
_VARIANTS = ("use_dora", "use_rslora", "rank_pattern", "alpha_pattern")
"""Of LoRA, whose scaling isn't alpha / r in each layer."""


def widen(adapter: Path, rank: int, out: Path, seed: int = 1) -> None:
    """Write the same adapter with a higher rank: what it adds to a model stays as it is, a training has more to learn with.

    The new rows of A are random, as PEFT begins, and the new columns of B zero.

    Raises InvalidInput: there is no adapter, it is of a variant that adds otherwise, or its rank is as high.
    """
    config = _config(adapter)
    if variants := [name for name in _VARIANTS if config.get(name)]:
        raise InvalidInput(f"{adapter} has {variants[0]}: its rank can't be changed so.")
    more = rank - config["r"]
    if more <= 0:
        raise InvalidInput(f"{adapter} has rank {config['r']}.", hint="Name a higher one.")
    random = torch.Generator().manual_seed(seed)
    wide = {
        name: _widened(name, weights.float(), more, random)
        for name, weights in load_file(adapter / WEIGHTS).items()
    }
    alpha = config["lora_alpha"] * rank / config["r"]
    whole = int(alpha) if alpha == int(alpha) else alpha
    _write(wide, config | {"r": rank, "lora_alpha": whole}, out)


def between(first: Path, second: Path, share: float, out: Path) -> None:
    """Write the adapter that has gone `share` of the way from the first to the second, which was trained from it, in bf16.

    Raises InvalidInput: a folder holds no adapter, or they have not the same tensors, or not the same scaling.
    """
    configs = [_config(folder) for folder in (first, second)]
    start, end = (load_file(folder / WEIGHTS) for folder in (first, second))
    shapes = [{name: each.shape for name, each in found.items()} for found in (start, end)]
    scalings = [[each.get(name) for name in ("lora_alpha", *_VARIANTS)] for each in configs]
    if shapes[0] != shapes[1] or scalings[0] != scalings[1]:
        raise InvalidInput(
            f"{first} and {second} have other tensors, or another scaling.",
            hint="The second is trained from the first.",
        )
    found = {
        name: torch.lerp(start[name].float(), end[name].float(), share).to(torch.bfloat16)
        for name in start
    }
    _write(found, configs[1], out)


def _config(adapter: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((checked(adapter) / _CONFIG).read_text(encoding="utf-8"))
    return found


def _widened(name: str, weights: torch.Tensor, more: int, random: torch.Generator) -> torch.Tensor:
    if _FIRST not in name:
        return torch.cat([weights, torch.zeros(weights.shape[0], more)], 1)
    width = weights.shape[1]
    return torch.cat([weights, (torch.rand(more, width, generator=random) * 2 - 1) / width**0.5])


def _write(weights: dict[str, torch.Tensor], config: dict[str, Any], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    whole = {name: each.contiguous() for name, each in weights.items()}
    save_file(whole, out / WEIGHTS, metadata={"format": "pt"})
    (out / _CONFIG).write_text(json.dumps(config, indent=2), encoding="utf-8")
