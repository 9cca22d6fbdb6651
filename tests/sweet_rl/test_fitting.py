"""The steps of the warm start's training, on a tiny model: what they compute, and that a killed one resumes."""

from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.lazy import lazy

adapters = lazy("sweet_rl.adapters")
fitting = lazy("sweet_rl.warm_start.fitting")
keeping = lazy("sweet_rl.warm_start.keeping")
tiny_model = lazy("tests.sweet_rl.tiny_model")
torch = lazy("torch")

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


def some_rows(count: int = 12) -> list[dict[str, list[int]]]:
    """Rows of several lengths, of which the last few tokens are learnt."""
    random = Random(1)
    rows = []
    for _ in range(count):
        ids = [random.randrange(20, 90) for _ in range(random.randrange(6, 40))]
        rows.append({"input_ids": ids, "labels": [-100] * (len(ids) - 3) + ids[-3:]})
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    written: Path = tiny_model.write_model(tmp_path_factory.mktemp("tiny") / "model")
    return written


def model(folder: Path) -> Any:
    return adapters.to_train(adapters.load_base(folder), None, rank=2, seed=1)


def weights(trained: Any) -> dict[str, Any]:
    return {
        name: each.detach().clone()
        for name, each in trained.named_parameters()
        if each.requires_grad
    }


def test_the_loss_is_that_of_the_learnt_tokens_whatever_parts_it_is_computed_in(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, losses, gradients = some_rows(), [], []
    for tokens in (30_000, 50):
        monkeypatch.setattr("sweet_rl.warm_start.fitting.TOKENS_AT_ONCE", tokens)
        trained = model(folder)
        losses.append(fitting.CHAINS.step(trained, rows))
        gradients.append([each.grad for each in trained.parameters() if each.grad is not None])
    whole = model(folder)
    expected, learnt = 0.0, 0
    for row in rows:
        ids, labels = (torch.tensor([row[name]]) for name in ("input_ids", "labels"))
        expected += float(whole(input_ids=ids, labels=labels).loss.detach()) * 3
        learnt += 3
    assert losses[0] == pytest.approx(expected / learnt, rel=1e-4)
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    for one, other in zip(*gradients, strict=True):
        assert torch.allclose(one, other, rtol=1e-3, atol=1e-6)


def test_a_training_that_was_killed_resumes_and_ends_as_if_it_never_was(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweet_rl.warm_start.fitting.SAVED_EVERY", 2)
    schedule = fitting.Schedule(steps=6, batch=4, rate=1e-2)
    through = model(folder)
    whole = fitting.fit(through, some_rows(), tmp_path / "whole.pt", schedule)

    step, made = fitting.CHAINS.step, []

    def killed(_chains: Any, *given: Any) -> float:
        made.append(1)
        if len(made) == 4:
            raise KeyboardInterrupt
        return float(step(*given))

    with monkeypatch.context() as patched:
        patched.setattr("sweet_rl.warm_start.fitting.Chains.step", killed)
        with pytest.raises(KeyboardInterrupt):
            fitting.fit(model(folder), some_rows(), tmp_path / "killed.pt", schedule)
    resumed = model(folder)
    rest = fitting.fit(resumed, some_rows(), tmp_path / "killed.pt", schedule)
    assert (rest.steps, rest.done) == (whole.steps, whole.done) == (6, 6)
    assert weights(resumed).keys() == weights(through).keys()
    for name, each in weights(through).items():
        assert torch.allclose(weights(resumed)[name], each, rtol=1e-4, atol=1e-6), name
    assert any(
        bool((each != 0).all()) for name, each in weights(through).items() if "lora_B" in name
    )


def test_every_row_is_seen_once_an_epoch_beside_rows_about_as_long() -> None:
    rows = some_rows(50)
    order = fitting.batches(rows, 8, seed=1)
    epoch = [next(order) for _ in range(7)]
    assert sorted(map(id, (row for batch in epoch for row in batch))) == sorted(map(id, rows))
    spread = [max(map(size, batch)) - min(map(size, batch)) for batch in epoch]
    assert sum(spread) / len(spread) < 10


def size(row: dict[str, list[int]]) -> int:
    return len(row["input_ids"])


def test_a_training_ends_within_its_time(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweet_rl.warm_start.fitting.TIMED_AT", (2,))
    schedule = fitting.Schedule(steps=10_000, batch=2, rate=1e-3, seconds=0.0)
    done = fitting.fit(model(folder), some_rows(4), tmp_path / "short.pt", schedule)
    assert (done.steps, done.done) == (2, 2)


def test_slow_first_steps_dont_shorten_a_training(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first step takes a minute, the others a second: 30 seconds are left, and 30 steps fit."""
    seconds = iter([0.0, 60.0, 61.0, 62.0, *range(63, 200)])
    monkeypatch.setattr("sweet_rl.warm_start.fitting.UNTIMED", 1)
    monkeypatch.setattr("sweet_rl.warm_start.fitting.TIMED_AT", (3,))
    clock = SimpleNamespace(monotonic=lambda: next(seconds))
    monkeypatch.setattr("sweet_rl.warm_start.fitting.time", clock)
    schedule = fitting.Schedule(steps=10_000, batch=2, rate=1e-3, seconds=92.0)
    done = fitting.fit(model(folder), some_rows(4), tmp_path / "slow.pt", schedule)
    assert done.steps == 3 + 30


def test_chat_stays_that_of_the_untrained_model_while_chains_are_learnt(folder: Path) -> None:
    rows, chats = some_rows(8), some_rows(20)[12:]
    schedule = fitting.Schedule(steps=40, batch=4, rate=3e-2)
    ends = {}
    for weight in (0.0, 1.0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sweet_rl.warm_start.keeping.WEIGHT", weight)
            learning = keeping.ChainsBesideChat(adapters.load_base(folder), chats, seed=1)
            trained = model(folder)
            fitted = fitting.fit(trained, rows, folder / f"kept{weight}.pt", schedule, learning)
        ends[weight] = (fitted.losses[-1][1], learning.divergences)
    assert ends[1.0][1][0] == 0, "an adapter begins as the untrained model"
    assert ends[1.0][1][-1] < ends[0.0][1][-1] / 2
    assert ends[1.0][0] < fitted.losses[0][1]
    with pytest.raises(ValueError, match="no chats"):
        keeping.ChainsBesideChat(trained, [], seed=1)
