"""Batches of pairs for TRL, with a mask on the agent's tokens alone.

TRL takes several turns as a completion, and would train on what the human said in between. It also has the
prompt of a pair twice, in two rows; here both sides share a row where the model allows it.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from trl.trainer.dpo_trainer import DataCollatorForPreference
from typing_extensions import override

from memserver.sweet_rl.agent_turns import AgentTurns
from memserver.sweet_rl.score_rows import Row, batch_of, forked


@dataclass
class AgentTurnCollator(DataCollatorForPreference):  # type: ignore[misc]
    """TRL's collator with the human's turns and all headers taken out of its completion mask.

    Set `shares` where the two sides of a pair can share a row (see `forks`).
    """

    turns: AgentTurns = field(kw_only=True)
    shares: bool = field(default=False, kw_only=True)

    @override
    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        """Chosen in the first half of the batch, rejected in the second; in the mask's, if they share rows."""
        if self.shares:
            return self._shared(examples)
        batch: dict[str, Any] = super().torch_call(examples)
        own = [self.turns.mask(row) for row in batch["input_ids"].tolist()]
        batch["completion_mask"] *= torch.tensor(own) * batch["attention_mask"]
        return batch

    def _shared(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        batch = batch_of([self._row(each) for each in examples], self.pad_token_id)
        own, branches = batch["completion_mask"], batch["branches"]
        return batch | {"completion_mask": torch.cat([own * (branches == side) for side in (1, 2)])}

    def _row(self, example: dict[str, Any]) -> Row:
        prompt, sides = example["prompt_ids"], [example["chosen_ids"], example["rejected_ids"]]
        own = [self.turns.mask(prompt + side)[len(prompt) :] for side in sides]
        return forked(prompt, sides, own)
