"""An ablation of SWEET-RL: a linear value of each turn's mean hidden state, in place of log-ratios.

The paper's critic for web pages is of this kind; for code it is worse than log-ratios (its table 3).
"""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from sweet_rl.adapters import Model

HEAD = "value_head.safetensors"
_NAME = "value_head"


def add_head(model: Model) -> None:
    """Put a head on a model, one that says 0 to everything. It is trained with the adapter."""
    embeddings = model.get_input_embeddings().weight
    head = torch.nn.Linear(embeddings.shape[1], 1, bias=False)
    torch.nn.init.zeros_(head.weight)
    setattr(model, _NAME, head.to(embeddings.device, torch.float32))


def has_head(folder: Path) -> bool:
    return (folder / HEAD).is_file()


def save_head(model: Model, folder: Path) -> None:
    save_file({"weight": getattr(model, _NAME).weight.detach().float().cpu()}, folder / HEAD)


def load_head(model: Model, folder: Path) -> None:
    head = getattr(model, _NAME)
    with torch.no_grad():
        head.weight.copy_(load_file(folder / HEAD)["weight"])


def token_values(model: Model, inputs: dict[str, Any]) -> torch.Tensor:
    """What the head says of each token's hidden state. It is linear, so a turn's value is their mean."""
    backbone = model.get_base_model().base_model
    hidden = backbone(**inputs, use_cache=False).last_hidden_state.float()
    weight = getattr(model, _NAME).weight[0]
    values: torch.Tensor = (hidden * weight).sum(-1)  # no matmul, which autocast would round
    return values


def turn_means(values: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    """The mean over each turn's tokens, (batch, turns); 0 where a row has no such turn.

    Args:
        values: (batch, tokens).
        turn: for each token the number of its turn from 1; 0 for what isn't the agent's.
    """
    each = torch.nn.functional.one_hot(turn, int(turn.max()) + 1)[..., 1:].to(values.dtype)
    return torch.einsum("bl,blt->bt", values, each) / each.sum(1).clamp(min=1)
