"""An adapter that is merged into the weights for each step: the same loss, and the same gradients."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.lazy import lazy

adapters = lazy("sweet_rl.adapters")
fitting = lazy("sweet_rl.warm_start.fitting")
merged = lazy("sweet_rl.merged")
tiny_model = lazy("tests.sweet_rl.tiny_model")
torch = lazy("torch")

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
ROWS = [
    {"input_ids": list(range(20, 20 + size)), "labels": [-100] * (size - 3) + [30, 31, 32]}
    for size in (6, 9, 14)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    written: Path = tiny_model.write_model(tmp_path_factory.mktemp("tiny") / "model")
    return written


@pytest.fixture
def model(folder: Path) -> Any:
    made = adapters.to_train(adapters.load_base(folder), None, rank=2, seed=1)
    torch.manual_seed(1)
    for name, parameter in made.named_parameters():
        if "lora_B" in name:
            parameter.data = torch.randn_like(parameter) / 10
    return made


def gradients(model: Any) -> dict[str, Any]:
    found = {
        name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None
    }
    model.zero_grad()
    return found


def test_a_merged_step_has_the_loss_and_the_gradients_of_the_adapter_beside_the_weights(
    model: Any,
) -> None:
    loss = fitting.CHAINS.step(model, ROWS)
    expected = gradients(model)
    beside: list[str] = []
    for name, module in model.named_modules():
        if name.endswith("lora_A.default"):
            module.register_forward_hook(lambda *_, name=name: beside.append(name))
    with merged.MergedAdapter(model).step():
        assert fitting.CHAINS.step(model, ROWS) == pytest.approx(loss, rel=1e-5)
    assert not beside, "an adapter was multiplied beside its weights"
    found = gradients(model)
    assert found.keys() == expected.keys() != set()
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-3, atol=1e-6)


def test_a_base_in_bf16_is_trained_with_merged_weights_in_its_own_precision(model: Any) -> None:
    for name, parameter in model.named_parameters():
        if "lora_" not in name:
            parameter.data = parameter.data.to(torch.bfloat16)
    with merged.MergedAdapter(model).step():
        loss = model(input_ids=torch.arange(8)[None]).logits.float().logsumexp(-1).mean()
        loss.backward()
    found = gradients(model)
    assert found
    assert all(each.dtype == torch.float32 and each.any() for each in found.values())


def test_the_gradients_of_several_parts_and_steps_add_up(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitting.CHAINS.step(model, ROWS)
    once = gradients(model)
    monkeypatch.setattr("sweet_rl.warm_start.fitting.TOKENS_AT_ONCE", 10)
    adapter = merged.MergedAdapter(model)
    for _ in range(2):
        with adapter.step():
            fitting.CHAINS.step(model, ROWS)
    for name, gradient in gradients(model).items():
        torch.testing.assert_close(gradient, 2 * once[name], rtol=1e-3, atol=1e-6)


def test_a_large_model_keeps_its_adapter_beside_the_weights(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweet_rl.merged.MOST_WEIGHTS", 10)
    beside: list[int] = []
    for module in model.modules():
        if hasattr(module, "lora_A"):
            module.lora_A["default"].register_forward_hook(lambda *_: beside.append(1))
    with merged.MergedAdapter(model).step():
        fitting.CHAINS.step(model, ROWS)
    assert beside
    assert gradients(model)


def test_a_model_computes_without_its_adapter_also_within_a_step_of_it(model: Any) -> None:
    ids = torch.arange(8)[None]
    with model.disable_adapter():
        base = model(input_ids=ids).logits
    with merged.MergedAdapter(model).step():
        with merged.MergedAdapter(model, None).merged():
            torch.testing.assert_close(model(input_ids=ids).logits, base)
        again = model(input_ids=ids).logits
        again.sum().backward()
    assert (again - base).abs().max() > 1e-3
    torch.testing.assert_close(again, model(input_ids=ids).logits)
    assert gradients(model)


def test_a_step_that_fails_leaves_the_model_as_it_was(model: Any) -> None:
    before = model(input_ids=torch.arange(8)[None]).logits
    with pytest.raises(ValueError, match="in the middle"), merged.MergedAdapter(model).step():
        raise ValueError("in the middle")
    torch.testing.assert_close(model(input_ids=torch.arange(8)[None]).logits, before)
    assert not gradients(model)


def test_a_model_without_an_adapter_and_one_with_dropout_are_trained_as_they_are(
    folder: Path, model: Any
) -> None:
    whole = adapters.load_base(folder)
    for module in model.modules():
        if hasattr(module, "lora_dropout"):
            module.lora_dropout["default"] = torch.nn.Dropout(0.1)
    for each in (whole, model):
        with merged.MergedAdapter(each).step():
            each(input_ids=torch.arange(8)[None]).logits.sum().backward()
        assert gradients(each)
