"""Learning from pairs: multi-turn DPO, and SWEET-RL's critic and actor, on TRL's DPOTrainer."""

from collections.abc import Sequence
from pathlib import Path

from datasets import Dataset, disable_progress_bars
from transformers import AutoTokenizer
from trl import DPOConfig

from memserver.errors import InvalidInput
from memserver.prompts import Prompts
from sweet_rl import adapters, training_run
from sweet_rl.agent_turns import AgentTurns, cleaned
from sweet_rl.collator import AgentTurnCollator
from sweet_rl.forks import can_fork
from sweet_rl.hidden_information import with_hidden
from sweet_rl.losses import PreferenceTrainer, RegressionTrainer
from sweet_rl.plans import PreferencePlan, Progress, unseen
from sweet_rl.regression_head import add_head, save_head
from sweet_rl.training_run import Figures
from sweet_rl.trajectories import Pair, read_file


def train_preferences(plan: PreferencePlan, progress: Progress = unseen) -> Figures:
    """Train, or go on with a training, and return its figures (also in `out`/figures.json).

    As `train_sft`; with `held_out` the figures have `held_out_accuracy` and `held_out_margin`.
    """
    training_run.claim(plan, plan.pairs)
    if (done := training_run.finished(plan.out)) is not None:
        return done
    disable_progress_bars()
    pairs = read_file(plan.pairs, Pair)
    trainer = make_trainer(plan, pairs)
    figures = training_run.run(trainer, plan.out, plan.schedule, progress)
    figures["pairs"] = len(pairs)
    if figures["finished"]:
        figures |= _held_out(trainer)
    return training_run.conclude(plan.out, figures, lambda folder: _save(plan, trainer, folder))


def make_trainer(plan: PreferencePlan, pairs: Sequence[Pair]) -> PreferenceTrainer:
    tokenizer = AutoTokenizer.from_pretrained(plan.base)
    schedule = plan.schedule
    model = adapters.to_train(
        adapters.load_base(plan.base, schedule.precision),
        plan.adapter,
        rank=plan.rank,
        seed=schedule.seed,
    )
    regression = plan.loss == "regression"
    if regression and training_run.processes().num_processes > 1:
        raise InvalidInput("A regression head is trained by one process.")
    if regression:
        add_head(model)
    trainer = (RegressionTrainer if regression else PreferenceTrainer)(
        model=model,
        args=DPOConfig(
            **training_run.arguments(schedule, plan.out),
            per_device_eval_batch_size=schedule.micro_batch or schedule.batch,
            eval_strategy="epoch" if plan.held_out else "no",
            beta=plan.beta,
        ),
        train_dataset=dataset(plan, pairs),
        eval_dataset=dataset(plan, read_file(plan.held_out, Pair)) if plan.held_out else None,
        processing_class=tokenizer,
        data_collator=AgentTurnCollator(
            pad_token_id=tokenizer.pad_token_id, turns=AgentTurns.of(tokenizer)
        ),
    )
    trainer.loss, trainer.nll = plan.loss, plan.nll
    trainer.data_collator.shares = can_fork(model, tokenizer)
    return trainer


def dataset(plan: PreferencePlan, pairs: Sequence[Pair]) -> Dataset:
    prompts = Prompts(plan.prompts)
    return Dataset.from_list(
        [
            {
                "prompt": cleaned(
                    with_hidden(pair.prompt, pair.hidden, prompts) if plan.hidden else pair.prompt
                ),
                "chosen": cleaned(pair.chosen),
                "rejected": cleaned(pair.rejected),
            }
            for pair in pairs
        ]
    )


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
