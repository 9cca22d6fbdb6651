"""Which function does which stage."""

from collections.abc import Mapping

from memserver.sweet_rl.bench import Work
from memserver.sweet_rl.play_work import candidates, collect, evaluate
from memserver.sweet_rl.rank_work import rank
from memserver.sweet_rl.stages import Stage
from memserver.sweet_rl.train_work import actor, critic, mdpo, rft, rft_matched, warm_start

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
