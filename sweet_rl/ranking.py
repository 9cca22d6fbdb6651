"""Ranks candidates by a critic's advantages, state by state, and goes on where it stopped."""

import os
import time
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from memserver_evals.runs.run_folder import AppendOnly
from sweet_rl.plans import Progress, ScorePlan, unseen
from sweet_rl.scores import Critic, scores_of
from sweet_rl.trajectories import Candidates, Ranked, read_file

AT_ONCE = 64
"""States that are scored and written at once."""


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
    start = time.monotonic()
    states = read_file(candidates, Candidates)
    ranked.parent.mkdir(parents=True, exist_ok=True)
    AppendOnly(ranked).close()  # cuts off half a line
    old = read_file(ranked, Ranked) if ranked.stat().st_size else []
    done = {record.key: record for record in old}
    left = [state for state in states if state.key not in done]
    critic = Critic.load(plan) if left else None
    progress(len(done), len(states))
    while left and critic is not None:
        if seconds is not None and time.monotonic() - start >= seconds:
            break
        some, left = left[:AT_ONCE], left[AT_ONCE:]
        new = [
            Ranked(**state.model_dump(), advantages=advantages)
            for state, advantages in zip(some, scores_of(critic, some), strict=True)
        ]
        _append(ranked, new)
        done |= {record.key: record for record in new}
        progress(len(done), len(states))
    return {
        "states": len(done),
        "finished": not left,
        "seconds": round(time.monotonic() - start, 1),
        **_spread(list(done.values())),
    }


def _append(path: Path, records: list[Ranked]) -> None:
    with path.open("ab") as file:
        file.write("".join(f"{record.model_dump_json()}\n" for record in records).encode())
        file.flush()
        os.fsync(file.fileno())


def _spread(records: list[Ranked]) -> dict[str, float]:
    if not records:
        return {"spread": 0.0, "distinct": 0.0}
    return {
        "spread": fmean(pstdev(record.advantages) for record in records),
        "distinct": fmean(
            len(set(record.candidates)) / len(record.candidates) for record in records
        ),
    }
