"""Supervised fine-tuning on the agent's turns: the warm start, and rejection fine-tuning."""

from typing import Any

from memserver.sweet_rl.plans import Progress, SftPlan, unseen


def train_sft(plan: SftPlan, progress: Progress = unseen) -> dict[str, Any]:
    """Train, or go on with a training, and return its figures (also in `out`/figures.json).

    `figures["finished"]` is false where the time was over first: call it again. The adapter is in
    `out`/adapter once it is true; a finished training isn't done again.

    Raises:
        InvalidInput: there is nothing to learn, or a batch can't be divided among the GPUs.
    """
    raise NotImplementedError
