"""Adapters of a higher rank, and between two."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from memserver.errors import InvalidInput
from sweet_rl import adapters
from sweet_rl.interpolation import between, widen
from sweet_rl.warm_start.__main__ import app, main
from tests.sweet_rl.tiny_model import write_model

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("base") / "model")


def adapter(model: Path, folder: Path, seed: int, rank: int = 4) -> Path:
    made = adapters.to_train(adapters.load_base(model), None, rank=rank, seed=seed)
    torch.manual_seed(seed)
    for name, parameter in made.named_parameters():
        if "lora_B" in name:
            parameter.data = torch.randn_like(parameter) / 10
    adapters.save(made, folder, base="tiny")
    return folder


def changed(folder: Path, **values: object) -> None:
    file = folder / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def logits(model: Path, folder: Path) -> torch.Tensor:
    whole = adapters.whole(adapters.load_base(model), folder)
    with torch.no_grad():
        found: torch.Tensor = whole(input_ids=torch.arange(20)[None]).logits
    return found


def run(*words: object) -> None:
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output


def test_a_wider_adapter_says_what_it_said_before(model: Path, tmp_path: Path) -> None:
    first = adapter(model, tmp_path / "first", 1)
    run("widen", first, tmp_path / "wide", "--rank", 8)
    assert json.loads((tmp_path / "wide/adapter_config.json").read_text())["r"] == 8
    torch.testing.assert_close(logits(model, tmp_path / "wide"), logits(model, first))
    assert not torch.allclose(
        logits(model, first), logits(model, adapter(model, tmp_path / "b", 2))
    )


def test_what_a_wider_adapter_gained_can_be_trained(model: Path, tmp_path: Path) -> None:
    widen(adapter(model, tmp_path / "first", 1), 8, tmp_path / "wide")
    rows = {
        name: each[4:]
        for name, each in load_file(tmp_path / "wide" / adapters.WEIGHTS).items()
        if "lora_A" in name
    }
    assert rows
    assert all(torch.count_nonzero(each) == each.numel() for each in rows.values())


def test_half_of_the_way_between_two_is_the_mean_of_their_weights(
    model: Path, tmp_path: Path
) -> None:
    first, second = (adapter(model, tmp_path / str(seed), seed) for seed in (1, 2))
    run("between", first, second, tmp_path / "half", "--share", 0.5)
    start, end, half = (
        load_file(each / adapters.WEIGHTS) for each in (first, second, tmp_path / "half")
    )
    for name, weights in half.items():
        mean = (start[name].float() + end[name].float()) / 2
        torch.testing.assert_close(weights, mean.to(torch.bfloat16))
    logits(model, tmp_path / "half")  # it can be loaded


@pytest.mark.parametrize(("share", "same"), [(0, "1"), (1, "2")])
def test_none_and_all_of_the_way_are_the_two(
    model: Path, tmp_path: Path, share: float, same: str
) -> None:
    first, second = (adapter(model, tmp_path / str(seed), seed) for seed in (1, 2))
    between(first, second, share, tmp_path / "out")
    torch.testing.assert_close(logits(model, tmp_path / "out"), logits(model, tmp_path / same))


def test_adapters_of_other_ranks_have_nothing_between_them(model: Path, tmp_path: Path) -> None:
    first, second = (adapter(model, tmp_path / str(rank), 1, rank) for rank in (4, 8))
    with pytest.raises(InvalidInput, match="other tensors"):
        between(first, second, 0.5, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_adapters_of_other_scalings_have_nothing_between_them(model: Path, tmp_path: Path) -> None:
    first, second = (adapter(model, tmp_path / str(seed), seed) for seed in (1, 2))
    changed(second, lora_alpha=4)
    with pytest.raises(InvalidInput, match="another scaling"):
        between(first, second, 0.5, tmp_path / "out")


@pytest.mark.parametrize(
    "variant", [{"use_rslora": True}, {"use_dora": True}, {"alpha_pattern": {"q_proj": 3}}]
)
def test_a_variant_of_lora_is_not_made_wider(
    model: Path, tmp_path: Path, variant: dict[str, object]
) -> None:
    first = adapter(model, tmp_path / "first", 1)
    changed(first, **variant)
    with pytest.raises(InvalidInput, match=next(iter(variant))):
        widen(first, 8, tmp_path / "wide")
    assert not (tmp_path / "wide").exists()


def test_what_is_wrong_is_said_in_a_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["warm_start", "widen", str(tmp_path), str(tmp_path / "out")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert "holds no adapter" in said
    assert "Traceback" not in said


def test_a_rank_that_is_not_higher_is_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="rank 4"):
        widen(adapter(model, tmp_path / "first", 1), 4, tmp_path / "wide")
