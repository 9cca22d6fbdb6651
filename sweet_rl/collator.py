"""Batches of pairs for TRL, with a mask on the agent's tokens alone.

TRL takes several turns as a completion, and would train on what the human said in between. It also has the
prompt of a pair twice, in two rows; here pairs share rows where the model allows it.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from trl.trainer.dpo_trainer import DataCollatorForPreference
from typing_extensions import override

from sweet_rl.agent_turns import AgentTurns
from sweet_rl.pair_rows import batch_of_pairs
from sweet_rl.score_rows import Row, forked


@dataclass
class AgentTurnCollator(DataCollatorForPreference):  # type: ignore[misc]
    """TRL's collator with the human's turns and all headers taken out of its completion mask.

    Set `shares` where pairs can share rows (see `forks`).
    """

    turns: AgentTurns = field(kw_only=True)
    shares: bool = field(default=False, kw_only=True)

    @override
    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        """Chosen in the first half of the batch, rejected in the second; of `places`, if they share rows."""
        if self.shares:
            return batch_of_pairs([self._fork(each) for each in examples], self.pad_token_id)
        batch: dict[str, Any] = super().torch_call(examples)
        own = [self.turns.mask(row) for row in batch["input_ids"].tolist()]
        batch["completion_mask"] *= torch.tensor(own) * batch["attention_mask"]
        return batch

    def _fork(self, example: dict[str, Any]) -> Row:
        prompt, sides = example["prompt_ids"], [example["chosen_ids"], example["rejected_ids"]]
        own = [self.turns.mask(prompt + side)[len(prompt) :] for side in sides]
        return forked(prompt, sides, own)
