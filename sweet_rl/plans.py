"""What a training or a scoring is to do, as values. Needs no torch, so a recipe can be read without it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Loss = Literal["sum", "trajectory_mean", "turn_mean", "regression"]
"""How a trajectory's agent tokens make its score; all go into -log sigmoid(beta * (chosen - rejected)).

sum: of the log-ratios of policy and reference (multi-turn DPO, and the actor on single turns).
trajectory_mean: their mean over all agent tokens, as the released SWEET-RL code has it.
turn_mean: for each turn its mean, and the sum of these (SWEET-RL, equations 2 and 3).
regression: for each turn a linear value of its mean hidden state, and the sum of these; no reference, no beta.
"""
Precision = Literal["bfloat16", "float32"]
"""Of a model on a GPU; on a CPU all is in float32. An adapter in training is in float32 either way."""
Progress = Callable[[int, int], None]
"""Is told of how many steps (or states) in all so many are done; also at the start, where a run resumes."""


def unseen(done: int, total: int) -> None:
    """A Progress that shows nothing."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long and how fast.

    Attributes:
        epochs: passes over the data.
        steps: at most so many optimizer steps; None leaves it to the epochs.
        seconds: that this call may train; a later call goes on where it stopped. None: to the end.
        batch: dialogues (or pairs) in a step, over all GPUs.
        micro_batch: of these, how many one GPU takes at once; None: all of its share.
        rate: the highest learning rate; a cosine takes it down to a tenth.
        warmup: share of the steps in which it rises.
        seed: of the order of the data, and of a new adapter's weights.
        save_every: steps between checkpoints. The newest one is kept.
        checkpointing: compute activations twice, to need less memory.
        precision: of the base model.
    """

    epochs: float = 1
    steps: int | None = None
    seconds: float | None = None
    batch: int = 32
    micro_batch: int | None = None
    rate: float = 1e-4
    warmup: float = 0.03
    seed: int = 0
    save_every: int = 100
    checkpointing: bool = False
    precision: Precision = "bfloat16"


@dataclass(frozen=True, slots=True)
class SftPlan:
    """Learn to say what the agent said in some trajectories (warm start, rejection fine-tuning).

    Attributes:
        base: the folder of a causal language model.
        trajectories: a file of Trajectory records; all of them are learnt.
        out: gets adapter/, figures.json, metrics.jsonl, tensorboard/ and checkpoints/.
        adapter: is trained on; None begins a new one.
        rank: of a new adapter.
        base_name: what the adapter's file says of its base; empty for the folder's name.
    """

    base: Path
    trajectories: Path
    out: Path
    adapter: Path | None = None
    rank: int = 16
    base_name: str = ""
    schedule: Schedule = field(default_factory=Schedule)


@dataclass(frozen=True, slots=True)
class PreferencePlan:
    """Learn to prefer (multi-turn DPO, SWEET-RL's critic and actor).

    Attributes:
        base: the folder of a causal language model.
        pairs: a file of Pair records.
        out: as in SftPlan.
        adapter: is trained on, and as it is at the start is the reference; None begins a new one, and
            the reference is the base.
        rank: of a new adapter.
        loss: see Loss.
        beta: how strongly the policy may leave the reference.
        nll: weight of the chosen agent tokens' mean negative log-likelihood; 0 leaves it out.
        hidden: put the hidden information into the prompt of policy and reference.
        held_out: a file of Pair records to measure the accuracy on, before and after.
        prompts: a folder of one's own prompts.
        base_name: as in SftPlan.
    """

    base: Path
    pairs: Path
    out: Path
    adapter: Path | None = None
    rank: int = 16
    loss: Loss = "sum"
    beta: float = 0.1
    nll: float = 0.01
    hidden: bool = False
    held_out: Path | None = None
    prompts: Path | None = None
    base_name: str = ""
    schedule: Schedule = field(default_factory=Schedule)


@dataclass(frozen=True, slots=True)
class ScorePlan:
    """What an agent's turns are worth by a critic.

    Attributes:
        base: the folder of a causal language model.
        critic: the adapter of a trained critic; a regression head in its folder is used if there is one.
        reference: the adapter that the critic started from; None: the base itself.
        hidden: the critic sees the hidden information.
        reference_hidden: the reference sees it too (as in training). Without, a score also has what the
            hidden information alone makes likelier, as the released code has it.
        normalised: a turn's mean over its tokens; else the sum.
        batch_tokens: padded tokens that go through the model at once.
        precision: of the base model. A difference of log-probabilities is small beside each.
        prompts: a folder of one's own prompts.
    """

    base: Path
    critic: Path
    reference: Path | None = None
    hidden: bool = True
    reference_hidden: bool = True
    normalised: bool = True
    batch_tokens: int = 32_768
    precision: Precision = "float32"
    prompts: Path | None = None
