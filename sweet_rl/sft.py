"""Supervised fine-tuning on the agent's turns: the warm start, and rejection fine-tuning.

TRL's SFTTrainer. The labels are ours (see `agent_turns`), so any chat template will do.
"""

from datasets import Dataset
from transformers import AutoTokenizer, DataCollatorForSeq2Seq
from trl import SFTConfig, SFTTrainer
from typing_extensions import override

from sweet_rl import adapters, training_run
from sweet_rl.agent_turns import AgentTurns
from sweet_rl.plans import Progress, SftPlan, unseen
from sweet_rl.training_run import Figures
from sweet_rl.trajectories import Trajectory, read_file


class AgentTurnTrainer(SFTTrainer):  # type: ignore[misc]
    @override
    def _send_telemetry(self) -> None: ...


def train_sft(plan: SftPlan, progress: Progress = unseen) -> Figures:
    """Train, or go on with a training, and return its figures (also in `out`/figures.json).

    `figures["finished"]` is false where the time was over first: call it again. The adapter is in
    `out`/adapter once it is true; a finished training isn't done again.
    """
    training_run.claim(plan, plan.trajectories)
    if (done := training_run.finished(plan.out)) is not None:
        return done
    tokenizer = AutoTokenizer.from_pretrained(plan.base)
    turns = AgentTurns.of(tokenizer)
    rows = [
        turns.labelled(tokenizer, trajectory.messages)
        for trajectory in read_file(plan.trajectories, Trajectory)
    ]
    schedule = plan.schedule
    trainer = AgentTurnTrainer(
        model=adapters.to_train(
            adapters.load_base(plan.base, schedule.precision),
            plan.adapter,
            rank=plan.rank,
            seed=schedule.seed,
        ),
        args=SFTConfig(
            **training_run.arguments(schedule, plan.out),
            dataset_kwargs={"skip_prepare_dataset": True},
        ),
        train_dataset=Dataset.from_list(rows),
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
