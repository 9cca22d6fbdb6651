"""Whether several ways to go on may share a row of a model: see `score_rows`."""

import torch

from sweet_rl.adapters import Model
from sweet_rl.agent_turns import Tokenizer, rendered
from sweet_rl.losses import log_probs
from sweet_rl.score_rows import Row, batch_of, forked, placed
from sweet_rl.trajectories import ChatMessage

_START: tuple[ChatMessage, ...] = (
    {"role": "system", "content": "Ask."},
    {"role": "user", "content": "I want a function of x."},
)
_NEXT = ("What is x?", "I don't know.", "x")
_CLOSE, _ROUNDINGS = 0.02, 16
"""How far a token's log-probability may be off: always, and for each rounding error of the model's numbers.

In bf16 that makes 0.15: SmolLM2 is off by 0.04, and by 0.7 where the branches see each other.
"""


def can_fork(model: Model, tokenizer: Tokenizer) -> bool:
    """Whether texts are as likely in one row as each alone; tried on a few words.

    Models for which that is something else (with a sliding window, say) are found out.
    """
    if getattr(model.config, "sliding_window", None):
        return False  # a mask of ours would be one without a window
    before = rendered(tokenizer, _START, ready=True)
    said = tokenizer(list(_NEXT), add_special_tokens=False)["input_ids"]
    alone = [Row(before + ids, [0] * len(before) + [1] * len(ids)) for ids in said]
    together = [forked(before, said)]
    one, other = (_scored(model, rows, tokenizer.pad_token_id) for rows in (alone, together))
    allowed = _CLOSE + _ROUNDINGS * torch.finfo(model.dtype).eps
    return bool((one - other).abs().mean() < allowed)


def _scored(model: Model, rows: list[Row], filler: int) -> torch.Tensor:
    batch = placed(batch_of(rows, filler), model)
    with torch.no_grad():
        return log_probs(model, batch)[batch["completion_mask"] > 0]
