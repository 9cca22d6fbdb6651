"""Which function does which stage."""

from collections.abc import Mapping

from sweet_rl.runs.bench import Work
from sweet_rl.runs.play_work import candidates, collect, evaluate
from sweet_rl.runs.rank_work import rank
from sweet_rl.runs.stages import Stage
from sweet_rl.runs.train_work import actor, critic, mdpo, rft, rft_matched, warm_start

WORK: Mapping[Stage, Work] = {
    "warm-start": warm_start,
    "collect": collect,
    "rft": rft,
    "mdpo": mdpo,
    "critic": critic,
    "candidates": candidates,
    "rank": rank,
    "actor": actor,
    "rft-matched": rft_matched,
    "validate": evaluate,
    "evaluate": evaluate,
}
