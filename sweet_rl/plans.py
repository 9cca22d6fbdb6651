"""What a training or a scoring is to do, as values. Needs no torch, so a recipe can be read without it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Loss = Literal["sum", "trajectory_mean", "turn_mean", "regression", "nll"]
"""How a trajectory's agent tokens make its score; all go into -log sigmoid(beta * (chosen - rejected)).

sum: of the log-ratios of policy and reference (multi-turn DPO, and the actor on single turns).
trajectory_mean: their mean over all agent tokens, as the released SWEET-RL code has it.
turn_mean: for each turn its mean, and the sum of these (SWEET-RL, equations 2 and 3).
regression: for each turn a linear value of its mean hidden state, and the sum of these; no reference, no beta.
nll: no preference at all, the chosen side's mean negative log-likelihood alone (an ablation).
"""
Precision = Literal["bfloat16", "float32"]
"""Of a model on a GPU; on a CPU all is in float32. An adapter in training is in float32 either way."""


@dataclass(frozen=True, slots=True)
class EpochSchedule:
    epochs: float = 1  # passes over the data
    steps: int | None = None  # at most so many optimizer steps; None leaves it to the epochs
    # that this call may train; a later call resumes where it stopped. None: to the end.
    seconds: float | None = None
    batch: int = 32  # dialogues (or pairs) in a step, over all GPUs
    # of these, how many one GPU takes at once; None: all of its share
    micro_batch: int | None = None
    rate: float = 1e-4  # the highest learning rate; a cosine takes it down to a tenth
    warmup: float = 0.03  # share of the steps in which it rises
    seed: int = 0  # of the order of the data, and of a new adapter's weights
    save_every: int = 100  # steps between checkpoints. The newest one is kept.
    checkpointing: bool = False  # compute activations twice, to need less memory
    full: bool = False  # train all weights, in float32, and not an adapter
    precision: Precision = "bfloat16"  # of the base model


@dataclass(frozen=True, slots=True)
class SftPlan:
    """Learn to say what the agent said in some trajectories (warm start, rejection fine-tuning)."""

    base: Path  # the folder of a causal language model
    trajectories: Path  # a file of Trajectory records; all of them are learnt
    out: Path  # gets adapter/, figures.json, metrics.jsonl, tensorboard/ and checkpoints/
    adapter: Path | None = None  # is trained on; None begins a new one
    rank: int = 16  # of a new adapter
    base_name: str = ""  # what the adapter's file says of its base; empty for the folder's name
    schedule: EpochSchedule = field(default_factory=EpochSchedule)


@dataclass(frozen=True, slots=True)
class PreferencePlan:
    """Learn to prefer (multi-turn DPO, SWEET-RL's critic and actor)."""

    base: Path  # the folder of a causal language model
    pairs: Path  # a file of Pair records
    out: Path  # as in SftPlan
    # is trained on, and as it is at the start is the reference; None begins a new one, and the reference is the base
    adapter: Path | None = None
    rank: int = 16  # of a new adapter
    loss: Loss = "sum"  # see Loss
    beta: float = 0.1  # how strongly the policy may leave the reference
    # weight of the chosen agent tokens' mean negative log-likelihood; 0 leaves it out
    nll: float = 0.01
    hidden: bool = False  # put the hidden information into the prompt of policy and reference
    # a file of Pair records to measure the accuracy on, before and after
    held_out: Path | None = None
    # end after so many measurements of the held-out loss without a lower one, and keep the best; None: never
    patience: int | None = None
    measure_every: int = 20  # steps between these
    in_order: bool = (
        False  # learn the pairs in the file's order, and not in one drawn for each epoch
    )
    base_name: str = ""  # as in SftPlan
    schedule: EpochSchedule = field(default_factory=EpochSchedule)


@dataclass(frozen=True, slots=True)
class ScorePlan:
    base: Path  # the folder of a causal language model
    critic: Path  # the adapter of a trained critic; a regression head in its folder is used if there is one
    reference: Path | None = None  # the adapter that the critic started from; None: the base itself
    hidden: bool = True  # the critic sees the hidden information
    # the reference sees it too (as in training). Without, a score also has what the hidden information alone makes
    # likelier, as the released code has it.
    reference_hidden: bool = True
    normalised: bool = True  # a turn's mean over its tokens; else the sum
    batch_tokens: int = 32_768  # padded tokens that go through the model at once
    # of the base model. A difference of log-probabilities is small beside each.
    precision: Precision = "float32"
