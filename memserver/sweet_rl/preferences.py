"""Learning from pairs: multi-turn DPO, and SWEET-RL's critic and actor, on TRL's DPOTrainer."""

from typing import Any

from memserver.sweet_rl.plans import PreferencePlan, Progress, unseen


def train_preferences(plan: PreferencePlan, progress: Progress = unseen) -> dict[str, Any]:
    """Train, or go on with a training, and return its figures (also in `out`/figures.json).

    As `train_sft`; with `held_out` the figures have its accuracy and margin, before and after.

    Raises:
        InvalidInput: there is nothing to learn, or a batch can't be divided among the GPUs.
    """
    raise NotImplementedError
