"""Base models and LoRA adapters: loaded for training or scoring, begun, and saved.

A folder of a policy holds an adapter, in bf16, or after full fine-tuning a whole model, in float32: bf16 would round its
small steps away.
"""

from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, set_seed
from transformers.utils import logging

from memserver.errors import InvalidInput
from sweet_rl.plans import Precision

Model = Any
WEIGHTS = "adapter_model.safetensors"
TRAINED = "default"
"""PEFT's name of the adapter that is trained."""


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def load_base(folder: Path, precision: Precision = "bfloat16") -> Model:
    """A causal language model; on a CPU always in float32."""
    if not (folder / "config.json").is_file():
        raise InvalidInput(
            f"{folder} holds no model.", hint="Name a folder in Hugging Face's form."
        )
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    on_gpu = device().type == "cuda"
    known = precision if on_gpu else "float32"
    if on_gpu and known == "float32":
        torch.set_float32_matmul_precision("high")  # TF32 on a GPU: finer than bf16, and fast
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, known))
    return model.to(device())


def whole(base: Model, adapter: Path | None) -> Model:
    if adapter is None:
        return base
    return PeftModel.from_pretrained(base, str(checked(adapter))).merge_and_unload()


def is_whole(folder: Path) -> bool:
    return (folder / "config.json").is_file()


def to_train(base: Model, adapter: Path | None, *, rank: int, seed: int) -> Model:
    """The base with an adapter on all linear layers (but the output's) that can be trained."""
    if adapter is not None:
        model = PeftModel.from_pretrained(base, str(checked(adapter)), is_trainable=True)
        # PEFT looks the base's name up on the Hub when a checkpoint is saved, unless it is a folder
        model.peft_config[TRAINED].base_model_name_or_path = base.config.name_or_path
        return model
    set_seed(seed)
    lora = LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    return get_peft_model(base, lora)


def save(model: Model, folder: Path, *, base: str) -> None:
    """Write the trained adapter in bf16, which halves it; it is served in bf16 anyway. Or the whole model."""
    if not isinstance(model, PeftModel):
        model.save_pretrained(folder)
        return
    for name, parameter in model.named_parameters():
        if f".{TRAINED}." in name:
            parameter.data = parameter.data.to(torch.bfloat16)
    model.peft_config[TRAINED].base_model_name_or_path = base
    model.save_pretrained(folder, selected_adapters=[TRAINED], save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)  # PEFT's form of a model card, not filled in


def checked(folder: Path) -> Path:
    if not (folder / WEIGHTS).is_file():
        raise InvalidInput(
            f"{folder} holds no adapter.", hint="Name a folder that a training made."
        )
    return folder
