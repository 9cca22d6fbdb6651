"""LoRA adapters for tests, as PEFT saves them, and the commands that load them."""

import json
from pathlib import Path

import numpy as np
from click.testing import Result
from safetensors.numpy import save_file
from typer.testing import CliRunner

from memserver.cli.main import app

BASE = "SmolLM2-135M-Instruct"


def make_adapter(
    folder: Path, *, strength: float = 0, hidden: int = 576, rank: int = 8, **config: object
) -> Path:
    """An adapter on the first layer's queries; one of strength 0 changes nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    fields: dict[str, object] = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": BASE,
        "r": rank,
        "lora_alpha": 16,
        "bias": "none",
        "target_modules": ["q_proj"],
        **config,
    }
    (folder / "adapter_config.json").write_text(json.dumps(fields), encoding="utf-8")
    drawn = np.random.default_rng(0).normal(size=(hidden, rank)).astype(np.float32)
    module = "base_model.model.model.layers.0.self_attn.q_proj"
    weights = {
        f"{module}.lora_A.weight": np.ascontiguousarray(drawn.T),
        f"{module}.lora_B.weight": strength * drawn,
    }
    save_file(weights, folder / "adapter_model.safetensors")
    return folder


def models(url: str, *arguments: str, **environment: str | None) -> Result:
    """`memserver models …` in this process; an error of ours is the result's `exception`."""
    set_ = {"MEMSERVER_LLM_BASE_URL": url, **environment}
    return CliRunner().invoke(app, ["models", *arguments], env=set_)
