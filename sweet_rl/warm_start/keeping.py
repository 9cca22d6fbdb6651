"""Ordinary chat stays the untrained model's: its own distribution is a target beside the chains that are learnt.

Learning its answers as text instead overfits: after 18 passes over 921 chats the held-out ones went from 1.6 to 3.2
nats a token. A distribution has no such text to learn by heart.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.functional import kl_div, log_softmax
from typing_extensions import override

from sweet_rl.warm_start.chains import IGNORED
from sweet_rl.warm_start.fitting import Chains, Row, batches, padded

Model = Any
CHATS = 16
"""In each step."""
WEIGHT = 0.5
"""Of the divergence, in nats a token, against the loss of the chains, in nats a token too."""


class ChainsBesideChat(Chains):
    """Learns chains; to each step's gradients it adds those of the divergence from the untrained model on some chats.

    Raises ValueError: there are no chats.
    """

    def __init__(self, untrained: Model, chats: Sequence[Row], *, seed: int) -> None:
        if not chats:
            raise ValueError("There are no chats to keep.")
        self._untrained = untrained.eval()
        self._chats: Iterator[list[Row]] = batches(chats, min(CHATS, len(chats)), seed, self)
        self.divergences: list[float] = []

    @override
    def step(self, model: Model, batch: Sequence[Row], /) -> float:
        loss = super().step(model, batch)
        self.divergences.append(round(self._keep(model), 4))
        return loss

    def _keep(self, model: Model) -> float:
        chats = next(self._chats)
        learnt = sum(label != IGNORED for row in chats for label in row["labels"])
        if dist.is_initialized():
            chats = chats[dist.get_rank() :: dist.get_world_size()]
        if not chats:
            return 0.0
        base = model.get_base_model()
        ids, labels = padded(chats, base.device)
        wanted = labels[:, 1:] != IGNORED
        with torch.no_grad():
            target = _log_probabilities(self._untrained, ids, wanted)
        reached = _log_probabilities(base, ids, wanted)
        lost = kl_div(reached, target, reduction="sum", log_target=True) / max(1, learnt)
        (WEIGHT * lost).backward()
        return float(lost.item())


def _log_probabilities(model: Model, ids: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    with torch.autocast(ids.device.type, dtype=torch.bfloat16, enabled=ids.is_cuda):
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
        logits = model.lm_head(hidden[:, :-1][wanted])
    return log_softmax(logits.float(), dim=-1)
