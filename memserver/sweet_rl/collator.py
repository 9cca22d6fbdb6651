"""Batches of pairs for TRL, with a mask on the agent's tokens alone.

TRL takes several turns as a completion, and would train on what the human said in between.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from trl.trainer.dpo_trainer import DataCollatorForPreference
from typing_extensions import override

from memserver.sweet_rl.agent_turns import AgentTurns


@dataclass
class AgentTurnCollator(DataCollatorForPreference):  # type: ignore[misc]
    """TRL's collator with the human's turns and all headers taken out of its completion mask."""

    turns: AgentTurns = field(kw_only=True)

    @override
    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        """Chosen in the first half of the batch, rejected in the second."""
        batch: dict[str, Any] = super().torch_call(examples)
        own = [self.turns.mask(row) for row in batch["input_ids"].tolist()]
        batch["completion_mask"] *= torch.tensor(own) * batch["attention_mask"]
        return batch
