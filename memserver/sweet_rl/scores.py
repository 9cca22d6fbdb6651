"""Per-turn advantages: what each message of an agent is worth by a critic (SWEET-RL, equation 2)."""

from collections.abc import Sequence
from typing import Any

from memserver.sweet_rl.plans import Progress, ScorePlan, unseen
from memserver.sweet_rl.trajectories import Candidates, Pair, Trajectory

Advantages = tuple[float, ...]


def score_turns(
    plan: ScorePlan, records: Sequence[Trajectory | Candidates], progress: Progress = unseen
) -> list[Advantages]:
    """For each trajectory the advantage of each turn; for candidates that of each candidate."""
    raise NotImplementedError


def pair_accuracy(
    plan: ScorePlan, pairs: Sequence[Pair], progress: Progress = unseen
) -> dict[str, Any]:
    """How often a critic's summed advantages put the chosen before the rejected.

    Returns:
        `pairs`, `accuracy` (ties count half) and `margin`, the mean difference.
    """
    raise NotImplementedError
