"""What a LoRA adapter adds to a model's weights."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from memserver.errors import SetupError
from memserver.local.engine.install import ADAPTER
from memserver.local.engine.lora import Adapter, read_safetensors
from memserver.local.engine.paths import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from tests.support.adapters import make_adapter

QUERIES = "model.layers.0.self_attn.q_proj.weight"


def test_a_weight_grows_by_the_product_of_its_two_parts(tmp_path: Path) -> None:
    folder = make_adapter(tmp_path, strength=0.5, hidden=6, rank=2)
    parts = load_file(folder / ADAPTER_WEIGHTS)
    down, up = (next(v for name, v in parts.items() if part in name) for part in ("_A", "_B"))
    weights = np.ones((6, 6), dtype=np.float32)
    adapter = Adapter(folder)
    assert adapter.targets == {QUERIES}
    np.testing.assert_allclose(adapter.merged(QUERIES, weights), 1 + 16 / 2 * up @ down, rtol=1e-6)
    other = "model.layers.1.self_attn.q_proj.weight"
    assert adapter.merged(other, weights) is weights


def test_an_adapter_of_strength_zero_changes_nothing(tmp_path: Path) -> None:
    adapter = Adapter(make_adapter(tmp_path, strength=0, hidden=6, rank=2))
    weights = np.random.default_rng(1).normal(size=(6, 6)).astype(np.float32)
    np.testing.assert_array_equal(adapter.merged(QUERIES, weights), weights)


def test_our_adapter_reaches_every_projection_of_the_thirty_layers() -> None:
    adapter = Adapter(ADAPTER)
    assert len(adapter.targets) == 30 * 7
    assert (ADAPTER / ADAPTER_WEIGHTS).stat().st_size < 20_000_000


def test_bf16_is_read_as_the_upper_half_of_a_float(tmp_path: Path) -> None:
    values = np.array([[1.0, -2.5], [0.15625, 3e38]], dtype=np.float32)
    halves = (values.view(np.uint32) >> 16).astype("<u2").tobytes()
    header = json.dumps({"a": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]}}).encode()
    file = tmp_path / "x.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header + halves)
    np.testing.assert_allclose(read_safetensors(file)["a"], values, rtol=1 / 128)


@pytest.mark.parametrize("broken", ["nothing", "no numbers", "half a file", "another kind"])
def test_what_is_no_plain_lora_adapter_is_a_clear_error(tmp_path: Path, broken: str) -> None:
    folder = make_adapter(tmp_path, hidden=6, rank=2)
    config = json.loads((folder / ADAPTER_CONFIG).read_text())
    if broken == "nothing":
        (folder / ADAPTER_CONFIG).unlink()
    elif broken == "no numbers":
        (folder / ADAPTER_CONFIG).write_text(json.dumps({**config, "r": None}))
    elif broken == "half a file":
        (folder / ADAPTER_WEIGHTS).write_bytes((folder / ADAPTER_WEIGHTS).read_bytes()[:100])
    else:
        (folder / ADAPTER_CONFIG).write_text(json.dumps({**config, "use_dora": True}))
    with pytest.raises(SetupError, match=r"LoRA"):
        Adapter(folder)


def test_an_adapter_for_another_model_is_a_clear_error(tmp_path: Path) -> None:
    adapter = Adapter(make_adapter(tmp_path, hidden=6, rank=2))
    with pytest.raises(SetupError, match=r"does not fit .*q_proj"):
        adapter.merged(QUERIES, np.ones((5, 6), dtype=np.float32))
