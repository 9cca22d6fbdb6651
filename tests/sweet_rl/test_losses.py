"""The losses, computed once more by hand from whole logits, by TRL where it has them, and in two rows a pair."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from sweet_rl.agent_turns import AgentTurns, cleaned, rendered
from sweet_rl.pairs import trajectory_pairs, with_hidden
from sweet_rl.plans import EpochSchedule, Loss, PreferencePlan
from sweet_rl.trajectories import Messages, Pair
from tests.support.lazy import lazy
from tests.support.nightly import NIGHTLY
from tests.sweet_rl.conversations import some_trajectories

adapters = lazy("sweet_rl.adapters")
losses = lazy("sweet_rl.losses")
preferences = lazy("sweet_rl.training")
torch = lazy("torch")
trl = lazy("trl")

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
PAIRS = trajectory_pairs(some_trajectories(3))
BETA, NLL = 0.7, 0.01
SCORES: dict[Loss, Callable[[list[list[float]]], float]] = {
    "sum": lambda turns: sum(map(sum, turns)),
    "trajectory_mean": lambda turns: sum(map(sum, turns)) / sum(map(len, turns)),
    "turn_mean": lambda turns: sum(sum(turn) / len(turn) for turn in turns),
}
THEIRS = {"sum": "sigmoid", "trajectory_mean": "sigmoid_norm"}


def trainer_of(
    base: Path, out: Path, loss: Loss, *, left: float = 0.3, **values: object
) -> losses.PreferenceTrainer:
    """A trainer whose policy has left its reference, and all pairs in one batch."""
    plan = PreferencePlan(
        base,
        out,
        out,
        loss=loss,
        beta=BETA,
        nll=NLL,
        schedule=EpochSchedule(batch=len(PAIRS)),
        **values,
    )
    trainer = preferences.make_trainer(plan, PAIRS)
    torch.manual_seed(1)
    for name, parameter in trainer.model.named_parameters():
        if ".lora_B.default." in name:
            torch.nn.init.normal_(parameter, std=left)
    return trainer


def begun_adapter(base: Path, folder: Path) -> Path:
    start = adapters.to_train(adapters.load_base(base), None, rank=4, seed=3)
    for name, parameter in start.named_parameters():
        if ".lora_B.default." in name:
            torch.nn.init.normal_(parameter, std=0.3)
    adapters.save(start, folder, base="tiny-base")
    return folder


def loss_of(
    trainer: losses.PreferenceTrainer, compute: Callable[..., torch.Tensor] | None = None
) -> float:
    batch = next(iter(trainer.get_train_dataloader()))
    with torch.no_grad():
        return float((compute or trainer.compute_loss)(trainer.model, batch))


def turns_of(
    trainer: losses.PreferenceTrainer, messages: Messages, first: int
) -> tuple[list[list[float]], list[list[float]]]:
    """For each of the agent's turns from `first` on, log-probabilities of policy and of reference."""
    tokenizer, model = trainer.processing_class, trainer.model
    ids = rendered(tokenizer, cleaned(messages))
    spans = AgentTurns.of(tokenizer).spans(ids)[first:]

    def tokens() -> list[list[float]]:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
        return [[float(logits[at - 1, ids[at]]) for at in range(*span)] for span in spans]

    policy = tokens()
    if "ref" in model.peft_config:
        model.set_adapter("ref")
        reference = tokens()
        model.set_adapter("default")
    else:
        with model.disable_adapter():
            reference = tokens()
    return policy, reference


def by_hand(
    trainer: losses.PreferenceTrainer, loss: Loss, prompt: Callable[[Pair], Messages]
) -> float:
    losses, chosen_tokens = [], []
    for pair in PAIRS:
        scores = []
        for said in (pair.chosen, pair.rejected):
            policy, reference = turns_of(trainer, (*prompt(pair), *said), 0)
            ratios = [
                [a - b for a, b in zip(one, other, strict=True)]
                for one, other in zip(policy, reference, strict=True)
            ]
            scores.append(SCORES[loss](ratios))
            if said is pair.chosen:
                chosen_tokens += [value for turn in policy for value in turn]
        margin = torch.tensor(BETA * (scores[0] - scores[1]), dtype=torch.float64)
        losses.append(float(-torch.nn.functional.logsigmoid(margin)))
    return sum(losses) / len(losses) - NLL * sum(chosen_tokens) / len(chosen_tokens)


@pytest.mark.parametrize("loss", SCORES)
def test_the_loss_is_what_the_formula_gives(tiny_base: Path, tmp_path: Path, loss: Loss) -> None:
    trainer = trainer_of(tiny_base, tmp_path, loss)
    wanted = by_hand(trainer, loss, lambda pair: pair.prompt)
    assert abs(loss_of(trainer) - wanted) < 1e-5
    assert abs(wanted - 0.6931) > 0.01, "the policy has left its reference"


@pytest.mark.parametrize("loss", THEIRS)
def test_two_of_the_losses_are_those_of_trl(tiny_base: Path, tmp_path: Path, loss: Loss) -> None:
    trainer = trainer_of(tiny_base, tmp_path, loss)
    trainer.loss_types, trainer.loss_weights = [THEIRS[loss], "sft"], [1.0, NLL]
    ours = loss_of(trainer)
    trainer.data_collator.shares = False
    theirs = loss_of(trainer, lambda *args: trl.DPOTrainer._compute_loss(trainer, *args, False))
    assert abs(ours - theirs) < 1e-5


def test_an_adapter_that_is_trained_on_is_its_own_reference(
    tiny_base: Path, tmp_path: Path
) -> None:
    start = begun_adapter(tiny_base, tmp_path / "start")
    trainer = trainer_of(tiny_base, tmp_path, "turn_mean", adapter=start)
    assert "ref" in trainer.model.peft_config
    wanted = by_hand(trainer, "turn_mean", lambda pair: pair.prompt)
    assert abs(loss_of(trainer) - wanted) < 1e-5


def test_hidden_information_stands_in_the_prompt_of_policy_and_reference(
    tiny_base: Path, tmp_path: Path
) -> None:
    trainer = trainer_of(tiny_base, tmp_path, "turn_mean", hidden=True)

    def prompt(pair: Pair) -> Messages:
        messages = tuple(with_hidden(pair.prompt, pair.hidden))
        assert pair.hidden in messages[0]["content"]
        assert messages[0]["content"].endswith(pair.prompt[0]["content"])
        return messages

    assert abs(loss_of(trainer) - by_hand(trainer, "turn_mean", prompt)) < 1e-5
    without = by_hand(trainer, "turn_mean", lambda pair: pair.prompt)
    assert abs(loss_of(trainer) - without) > 1e-3


def shared_or_not(
    trainer: losses.PreferenceTrainer, *, shares: bool
) -> tuple[torch.Size, float, dict[str, list[float]], dict[str, torch.Tensor]]:
    """Rows and tokens, loss, what is noted for the log, and gradients of a batch of all pairs."""
    trainer.data_collator.shares = shares
    trainer.model.zero_grad()
    trainer._metrics["train"].clear()
    batch = next(iter(trainer.get_train_dataloader()))
    loss = trainer.compute_loss(trainer.model.train(), batch)
    loss.backward()
    slopes = {
        name: each.grad.clone()
        for name, each in trainer.model.named_parameters()
        if each.grad is not None
    }
    return batch["input_ids"].shape, float(loss.detach()), dict(trainer._metrics["train"]), slopes


@pytest.mark.parametrize("loss", get_args(Loss))
@pytest.mark.parametrize("room", [1, 400])
def test_pairs_in_shared_rows_are_learnt_as_in_two_rows_each(
    tiny_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, loss: Loss
) -> None:
    monkeypatch.setattr("sweet_rl.rows.ROOMS", (room,))
    trainer = trainer_of(tiny_base, tmp_path, loss, hidden=room == 1)
    assert trainer.data_collator.shares
    if loss == "regression":
        torch.nn.init.normal_(trainer.model.value_head.weight)
    one = shared_or_not(trainer, shares=True)
    two = shared_or_not(trainer, shares=False)
    assert two[0][0] == 2 * len(PAIRS)
    sides = {str((pair.prompt, side)) for pair in PAIRS for side in (pair.chosen, pair.rejected)}
    assert len(sides) < 2 * len(PAIRS), "some are of several pairs"
    assert (one[0][0] == len(sides)) == (room == 1), "a row has one side at least"
    assert one[0].numel() <= 0.75 * two[0].numel()
    assert abs(one[1] - two[1]) < 1e-5
    assert one[2].keys() == two[2].keys()
    assert all(one[2][name] == pytest.approx(two[2][name], abs=1e-4) for name in one[2])
    assert one[3].keys() == two[3].keys()
    assert any(slope.abs().max() > 1e-3 for slope in one[3].values())
    assert all(torch.allclose(one[3][name], two[3][name], atol=1e-5) for name in one[3])


@pytest.mark.parametrize("processes", [1, 2])
def test_a_training_step_merges_policy_and_reference_unless_processes_share_it(
    tiny_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    start = begun_adapter(tiny_base, tmp_path / "start")
    trainer = trainer_of(tiny_base, tmp_path, "turn_mean", adapter=start)
    expected = shared_or_not(trainer, shares=True)
    trainer.model.zero_grad()
    beside: set[str] = set()
    for name, module in trainer.model.named_modules():
        if name.endswith(("lora_A.default", "lora_A.ref")):
            module.register_forward_hook(lambda *_, name=name: beside.add(name.rpartition(".")[2]))
    monkeypatch.setattr(type(trainer.accelerator), "num_processes", processes)
    trainer.current_gradient_accumulation_steps = 1  # as `train` sets it
    batch = next(iter(trainer.get_train_dataloader()))
    loss = trainer.training_step(trainer.model, batch)
    assert float(loss) == pytest.approx(expected[1], abs=1e-5)
    assert abs(float(loss) - 0.6931) > 1e-3, "the policy has left its reference"
    assert beside == ({"default", "ref"} if processes > 1 else set())
    found = {
        name: each.grad for name, each in trainer.model.named_parameters() if each.grad is not None
    }
    assert found.keys() == expected[3].keys() != set()
    for name, slope in found.items():
        torch.testing.assert_close(slope, expected[3][name], rtol=1e-3, atol=1e-5)


def test_held_out_pairs_are_measured_with_merged_weights(tiny_base: Path, tmp_path: Path) -> None:
    trainer = trainer_of(tiny_base, tmp_path, "sum")
    expected = loss_of(trainer)
    beside: list[str] = []
    for name, module in trainer.model.named_modules():
        if name.endswith("lora_A.default"):
            module.register_forward_hook(lambda *_, name=name: beside.append(name))
    found = trainer.evaluate(trainer.train_dataset)
    assert not beside
    assert found["eval_loss"] == pytest.approx(expected, abs=1e-4)


@pytest.mark.model
@pytest.mark.skipif(not NIGHTLY, reason="takes minutes: make nightly")
@pytest.mark.timeout(600)
def test_the_real_model_learns_pairs_in_shared_rows_as_in_two_rows_each(tmp_path: Path) -> None:
    from memserver.local.engine.paths import BASE_NAME, EnginePaths
    from tests.support.real_engine import engine_home

    base = EnginePaths(engine_home()).of(BASE_NAME)
    trainer = trainer_of(base, tmp_path, "turn_mean", left=0.02, hidden=True)
    assert trainer.data_collator.shares
    one = shared_or_not(trainer, shares=True)
    two = shared_or_not(trainer, shares=False)
    assert abs(one[1] - two[1]) < 1e-5
    assert abs(one[1] - 0.6931) > 1e-3, "the policy has left its reference"
    assert all(torch.allclose(one[3][name], two[3][name], atol=1e-3) for name in one[3])


def test_a_model_to_which_a_fork_means_something_else_learns_a_pair_in_two_rows(
    tiny_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "sweet_rl.rows._mask",
        lambda branches, _, dtype: torch.zeros(len(branches), 1, 1, branches.shape[1], dtype=dtype),
    )
    trainer = trainer_of(tiny_base, tmp_path, "sum")
    wanted = by_hand(trainer, "sum", lambda pair: pair.prompt)
    assert abs(loss_of(trainer) - wanted) < 1e-5


def test_turns_are_numbered_and_weighed() -> None:
    mask = torch.tensor([[0, 1, 1, 0, 0, 1, 0], [0, 0, 1, 1, 1, 0, 0]])
    assert losses.numbered(mask).tolist() == [[0, 1, 1, 0, 0, 2, 0], [0, 0, 1, 1, 1, 0, 0]]
    third = pytest.approx(1 / 3)
    assert losses.weights(mask, "sum").tolist() == mask.tolist()
    assert losses.weights(mask, "turn_mean").tolist() == [
        [0, 0.5, 0.5, 0, 0, 1, 0],
        [0, 0, third, third, third, 0, 0],
    ]
    assert losses.weights(mask, "trajectory_mean").tolist() == [
        [0, third, third, 0, 0, third, 0],
        [0, 0, third, third, third, 0, 0],
    ]
