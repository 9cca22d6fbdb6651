"""Trainings on TRL: supervised fine-tuning on the agent's turns, and learning from pairs.

The labels and masks are ours (see `agent_turns`), so any chat template will do. TRL takes several turns as a
completion, and would train on what the human said in between. It also has the prompt of a pair twice, in two rows;
here pairs share rows where the model allows it.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from datasets import Dataset, disable_progress_bars
from datasets.table import InMemoryTable
from transformers import AutoTokenizer, DataCollatorForSeq2Seq
from trl import DPOConfig, SFTConfig, SFTTrainer
from trl.data_utils import common_prefix_length
from trl.trainer.dpo_trainer import DataCollatorForPreference
from typing_extensions import override

from memserver.errors import InvalidInput
from sweet_rl import adapters, training_run
from sweet_rl.agent_turns import AgentTurns, Tokenizer, all_rendered, cleaned
from sweet_rl.losses import PreferenceTrainer, RegressionTrainer, add_head, can_fork, save_head
from sweet_rl.merged import MergedSteps
from sweet_rl.pairs import with_hidden
from sweet_rl.plans import PreferencePlan, SftPlan
from sweet_rl.progress import Progress, unseen
from sweet_rl.rows import Row, batch_of_pairs, forked
from sweet_rl.training_run import Figures
from sweet_rl.trajectories import ChatMessage, Pair, Trajectory, read_file


@dataclass
class AgentTurnCollator(DataCollatorForPreference):  # type: ignore[misc]
    """TRL's collator with the human's turns and all headers taken out of its completion mask.

    Set `shares` where pairs can share rows (see `losses.can_fork`).
    """

    turns: AgentTurns = field(kw_only=True)
    shares: bool = field(default=False, kw_only=True)

    @override
    def torch_call(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        """Chosen in the first half of the batch, rejected in the second; of `places`, if they share rows."""
        if self.shares:
            return batch_of_pairs([self._fork(each) for each in examples], self.pad_token_id)
        batch: dict[str, Any] = super().torch_call(examples)
        own = [self.turns.mask(row) for row in batch["input_ids"].tolist()]
        batch["completion_mask"] *= torch.tensor(own) * batch["attention_mask"]
        return batch

    def _fork(self, example: dict[str, Any]) -> tuple[Row, Row]:
        prompt, chosen, rejected = (
            example[f"{name}_ids"] for name in ("prompt", "chosen", "rejected")
        )
        return self._side(prompt, chosen), self._side(prompt, rejected)

    def _side(self, prompt: list[int], ids: list[int]) -> Row:
        return forked(prompt, [ids], [self.turns.mask(prompt + ids)[len(prompt) :]])


class AgentTurnTrainer(MergedSteps, SFTTrainer):  # type: ignore[misc]
    @override
    def _send_telemetry(self) -> None: ...


def train_sft(plan: SftPlan, progress: Progress = unseen) -> Figures:
    """Train, or resume a training, and return its figures (also in `out`/figures.json).

    `figures["finished"]` is false where the time was over first: call it again. The adapter is in
    `out`/adapter once it is true; a finished training isn't done again.
    """
    training_run.claim(plan, plan.trajectories)
    if (done := training_run.finished(plan.out)) is not None:
        return done
    tokenizer = AutoTokenizer.from_pretrained(plan.base)
    turns = AgentTurns.of(tokenizer)
    learnt = read_file(plan.trajectories, Trajectory)
    rows = turns.labelled(tokenizer, [trajectory.messages for trajectory in learnt])
    schedule = plan.schedule
    trainer = AgentTurnTrainer(
        model=_model(plan),
        args=SFTConfig(
            **training_run.arguments(schedule, plan.out),
            dataset_kwargs={"skip_prepare_dataset": True},
        ),
        train_dataset=_table(rows),
        processing_class=tokenizer,
        data_collator=DataCollatorForSeq2Seq(tokenizer, padding=True),
    )
    figures = training_run.run(trainer, plan.out, schedule, progress)
    figures |= {
        "trajectories": len(rows),
        "tokens": sum(len(row["input_ids"]) for row in rows),
        "agent_tokens": sum(label >= 0 for row in rows for label in row["labels"]),
    }
    return training_run.conclude(
        plan.out,
        figures,
        lambda folder: adapters.save(trainer.model, folder, base=plan.base_name or plan.base.name),
    )


def train_preferences(plan: PreferencePlan, progress: Progress = unseen) -> Figures:
    """Train, or resume a training, and return its figures (also in `out`/figures.json).

    As `train_sft`; with `held_out` the figures have `held_out_accuracy` and `held_out_margin`.
    """
    training_run.claim(plan, plan.pairs)
    if (done := training_run.finished(plan.out)) is not None:
        return done
    disable_progress_bars()
    pairs = read_file(plan.pairs, Pair)
    trainer = make_trainer(plan, pairs)
    patience = plan.patience if plan.held_out else None
    figures = training_run.run(trainer, plan.out, plan.schedule, progress, patience)
    figures["pairs"] = len(pairs)
    if figures["finished"]:
        figures |= _held_out(trainer)
    return training_run.conclude(plan.out, figures, lambda folder: _save(plan, trainer, folder))


def make_trainer(plan: PreferencePlan, pairs: Sequence[Pair]) -> PreferenceTrainer:
    tokenizer = AutoTokenizer.from_pretrained(plan.base)
    schedule = plan.schedule
    model = _model(plan)
    regression = plan.loss == "regression"
    if regression and training_run.processes().num_processes > 1:
        raise InvalidInput("A regression head is trained by one process.")
    if regression and schedule.full:
        raise InvalidInput("A regression head is trained with an adapter.")
    if regression:
        add_head(model)
    trainer = (RegressionTrainer if regression else PreferenceTrainer)(
        model=model,
        ref_model=deepcopy(model) if schedule.full else None,
        args=DPOConfig(
            **(training_run.arguments(schedule, plan.out) | _measured(plan)),
            per_device_eval_batch_size=schedule.micro_batch or schedule.batch,
            train_sampling_strategy="sequential" if plan.in_order else "random",
            beta=plan.beta,
        ),
        train_dataset=dataset(plan, pairs, tokenizer),
        eval_dataset=None
        if plan.held_out is None
        else dataset(plan, read_file(plan.held_out, Pair), tokenizer),
        processing_class=tokenizer,
        data_collator=AgentTurnCollator(
            pad_token_id=tokenizer.pad_token_id, turns=AgentTurns.of(tokenizer)
        ),
    )
    trainer.loss, trainer.nll = plan.loss, plan.nll
    trainer.data_collator.shares = can_fork(model, tokenizer)
    return trainer


def _model(plan: SftPlan | PreferencePlan) -> adapters.Model:
    schedule = plan.schedule
    if schedule.full:
        whole = adapters.whole(adapters.load_base(plan.base, "float32"), plan.adapter)
        return whole.requires_grad_(True)
    base = adapters.load_base(plan.base, schedule.precision)
    return adapters.to_train(base, plan.adapter, rank=plan.rank, seed=schedule.seed)


def _measured(plan: PreferencePlan) -> dict[str, Any]:
    """When the held-out pairs are looked at, and what that decides."""
    if plan.held_out is None or plan.patience is None:
        return {"eval_strategy": "epoch" if plan.held_out else "no"}
    return {
        "eval_strategy": "steps",
        "eval_steps": plan.measure_every,
        "save_steps": plan.measure_every,
        "save_total_limit": 2,  # the best one, and the last one to resume from
        "load_best_model_at_end": True,
        "metric_for_best_model": "eval_loss",
        "greater_is_better": False,
    }


def _table(rows: list[dict[str, Any]]) -> Dataset:
    """`Dataset.from_list` would pickle all of it for a hash, which fails with some versions and is used for nothing."""
    return Dataset(InMemoryTable.from_pylist(rows), fingerprint=uuid4().hex[:16])


def dataset(plan: PreferencePlan, pairs: Sequence[Pair], tokenizer: Tokenizer) -> Dataset:
    """The pairs in tokens, as TRL has them. It would render each chat of each pair by itself, on one core."""
    starts = [
        with_hidden(each.prompt, each.hidden) if plan.hidden else each.prompt for each in pairs
    ]
    both = list(zip(starts, pairs, strict=True))
    prompts = _rendered_once(tokenizer, starts, ready=True)
    chosen = _rendered_once(tokenizer, [[*start, *pair.chosen] for start, pair in both])
    rejected = _rendered_once(tokenizer, [[*start, *pair.rejected] for start, pair in both])
    return _table(list(map(_split, prompts, chosen, rejected)))


def _rendered_once(
    tokenizer: Tokenizer, chats: Sequence[Sequence[ChatMessage]], *, ready: bool = False
) -> list[list[int]]:
    """The tokens of each; a chat that is there several times is rendered once."""
    keys = [str(chat) for chat in chats]
    different = dict(zip(keys, chats, strict=True))
    shown = [cleaned(chat) for chat in different.values()]
    found = dict(zip(different, all_rendered(tokenizer, shown, ready=ready), strict=True))
    return [found[key] for key in keys]


def _split(prompt: list[int], chosen: list[int], rejected: list[int]) -> dict[str, list[int]]:
    """The sides start where the first of them leaves the prompt: a template may render its end otherwise."""
    at = min(common_prefix_length(prompt, side) for side in (chosen, rejected))
    return {"prompt_ids": prompt[:at], "chosen_ids": chosen[at:], "rejected_ids": rejected[at:]}


def _held_out(trainer: PreferenceTrainer) -> Figures:
    if trainer.eval_dataset is None:
        return {}
    found = trainer.evaluate()
    return {
        "held_out_pairs": len(trainer.eval_dataset),
        "held_out_accuracy": found["eval_rewards/accuracies"],
        "held_out_margin": found["eval_rewards/margins"],
        "held_out_loss": found["eval_loss"],
    }


def _save(plan: PreferencePlan, trainer: PreferenceTrainer, folder: Path) -> None:
    adapters.save(trainer.model, folder, base=plan.base_name or plan.base.name)
    if plan.loss == "regression":
        save_head(trainer.model, folder)
