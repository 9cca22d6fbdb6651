"""What tests of training share: a tiny random model on one thread, and a trained critic."""

from pathlib import Path

import pytest

from sweet_rl.runs import train_stages
from tests.sweet_rl.small_run import Trainings


@pytest.fixture(scope="session")
def one_thread() -> None:
    """Two threads of one tiny sum wait for each other far longer than they work, on a busy machine."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_base(one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.sweet_rl.tiny_model import write_model  # heavy, and not for every test here

    return write_model(tmp_path_factory.mktemp("tiny") / "tiny-base")


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> Trainings:
    found = Trainings([])
    monkeypatch.setattr(train_stages, "trained", found.train)
    return found
