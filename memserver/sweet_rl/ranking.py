"""Ranks candidates by a critic's advantages, state by state, and goes on where it stopped."""

from pathlib import Path
from typing import Any

from memserver.sweet_rl.plans import Progress, ScorePlan, unseen


def rank(
    plan: ScorePlan,
    candidates: Path,
    ranked: Path,
    progress: Progress = unseen,
    *,
    seconds: float | None = None,
) -> dict[str, Any]:
    """Append a Ranked record for each Candidates record that has none yet.

    Returns:
        `states`, `finished` (false where `seconds` were over first), `spread` (the mean standard deviation
        of a state's advantages) and `distinct` (the mean share of different texts among its candidates).
    """
    raise NotImplementedError
