"""The preference losses as one subclass of TRL's DPOTrainer.

What TRL does (tokens, the frozen copy of the adapter as reference, log-probabilities without the whole
logits, the loop) is its own. Ours is how log-ratios become a trajectory's score: TRL has the sum and the
mean over a completion ("sigmoid", "sigmoid_norm"), not the paper's sum over turns of means, and its metrics
are of sums always. The three are one weight for each token here; a test holds two of them equal to TRL's.

An ablation has a linear value of each turn's mean hidden state in place of log-ratios. The paper's critic for web
pages is of this kind; for code it is worse than log-ratios (its table 3).
"""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from trl import DPOTrainer
from trl.trainer.utils import use_adapter
from typing_extensions import override

from sweet_rl.adapters import Model
from sweet_rl.agent_turns import Tokenizer, rendered
from sweet_rl.merged import MergedSteps
from sweet_rl.plans import Loss
from sweet_rl.rows import Batch, Row, batch_of, by_side, forked, placed, seen
from sweet_rl.trajectories import ChatMessage

HEAD = "value_head.safetensors"
_NAME = "value_head"
_START: tuple[ChatMessage, ...] = (
    {"role": "system", "content": "Ask."},
    {"role": "user", "content": "I want a function of x."},
)
_NEXT = ("What is x?", "I don't know.", "x")
_CLOSE, _ROUNDINGS = 0.02, 16
"""How far a token's log-probability may be off: always, and for each rounding error of the model's numbers.

In bf16 that makes 0.15: SmolLM2 is off by 0.04, and by 0.7 where the branches see each other.
"""


def numbered(mask: torch.Tensor) -> torch.Tensor:
    """For each token the number of its turn, from 1; 0 outside of turns. Turns never touch."""
    before = torch.nn.functional.pad(mask, (1, 0))[:, :-1]
    return ((mask - before).clamp(min=0).cumsum(1) * mask).long()


def weights(mask: torch.Tensor, loss: Loss) -> torch.Tensor:
    """How much each token's log-ratio counts in its trajectory's score.

    Args:
        mask: (batch, tokens), 1 for the agent's.
        loss: "sum", "trajectory_mean" or "turn_mean".
    """
    own = mask.float()
    match loss:
        case "trajectory_mean":
            return own / own.sum(1, keepdim=True).clamp(min=1)
        case "turn_mean":
            turn = numbered(mask)
            sizes = torch.zeros(len(turn), int(turn.max()) + 1, device=mask.device)
            sizes.scatter_add_(1, turn, torch.ones_like(own))
            return own / sizes.gather(1, turn)
        case _:
            return own


class PreferenceTrainer(MergedSteps, DPOTrainer):  # type: ignore[misc]
    """Bradley-Terry over two trajectories' scores, and the chosen one's negative log-likelihood.

    Set `loss` and `nll` before training; beta is the configuration's.
    """

    loss: Loss = "sum"
    nll: float = 0.0

    @override
    def _send_telemetry(self) -> None:
        """Nothing is sent about who trains."""

    @override
    def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
        """It is in tokens already."""
        return dataset

    @override
    def _compute_loss(self, model: Any, inputs: Batch, return_outputs: bool = False) -> Any:
        inputs = placed(inputs, self.accelerator.unwrap_model(model))
        policy, mask = by_side(log_probs(model, inputs), inputs)
        with torch.no_grad():
            reference, _ = by_side(self.reference_log_probs(inputs), inputs)
        scores = ((policy - reference) * weights(mask, self.loss)).sum(1)
        chosen, rejected = (self.beta * scores).chunk(2)
        loss = -torch.nn.functional.logsigmoid(chosen - rejected).mean()
        own = mask.chunk(2)[0]
        nll = -(policy.chunk(2)[0] * own).sum() / own.sum().clamp(min=1)
        self._note(chosen, rejected, nll=nll)
        if self.loss == "nll":
            return nll
        return loss + self.nll * nll if self.nll else loss

    def reference_log_probs(self, inputs: Batch) -> torch.Tensor:
        if self.ref_model is not None:
            return log_probs(self.ref_model, inputs)
        model = self.accelerator.unwrap_model(self.model)
        adapter = "ref" if "ref" in model.peft_config else None
        with self.with_merged(adapter), use_adapter(model, adapter):
            return log_probs(self.model, inputs)

    @override
    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """Before 5.24, transformers leaves the trained adapter as it is where there is a second one."""
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        policy = self.accelerator.unwrap_model(self.model)
        if self.ref_model is not None:
            return
        policy.load_adapter(resume_from_checkpoint, "default", is_trainable=True)
        policy.set_adapter("default")

    @override
    def _load_best_model(self) -> None:
        self._load_from_checkpoint(self.state.best_model_checkpoint)

    def _note(self, chosen: torch.Tensor, rejected: torch.Tensor, **others: torch.Tensor) -> None:
        """Keep each pair's figures until the next log, which gives their mean; ties count half."""
        won = (chosen > rejected).float() + 0.5 * (chosen == rejected).float()
        found = {
            "rewards/chosen": chosen,
            "rewards/rejected": rejected,
            "rewards/margins": chosen - rejected,
            "rewards/accuracies": won,
            **others,
        }
        kept = self._metrics["train" if self.model.training else "eval"]
        for name, value in found.items():
            values = value.detach().float().reshape(-1)
            kept[name] += self.accelerator.gather_for_metrics(values).tolist()


class RegressionTrainer(PreferenceTrainer):
    @override
    def _compute_loss(self, model: Any, inputs: Batch, return_outputs: bool = False) -> Any:
        inputs = placed(inputs, self.accelerator.unwrap_model(model))
        values, mask = by_side(token_values(model, seen(inputs)), inputs)
        chosen, rejected = turn_means(values, numbered(mask)).sum(1).chunk(2)
        self._note(chosen, rejected)
        return -torch.nn.functional.logsigmoid(chosen - rejected).mean()

    @override
    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        super()._save(output_dir, state_dict)
        save_head(self.model, Path(output_dir or self.args.output_dir))

    @override
    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        load_head(self.model, Path(resume_from_checkpoint))


def log_probs(model: Model, inputs: Batch) -> torch.Tensor:
    labels = inputs["input_ids"].masked_fill(inputs["completion_mask"] == 0, -100)
    found: torch.Tensor = model(
        **seen(inputs), labels=labels, use_cache=False, fused_lm_head=True
    ).log_probs
    return torch.nn.functional.pad(found, (1, 0))  # nothing says how likely the first is


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
