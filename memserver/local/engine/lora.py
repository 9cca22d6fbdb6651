"""Merging a LoRA adapter into a model's weights: W + (alpha / r) B A (arXiv 2106.09685, section 4.1).

On a CPU an adapter for each request is slow; a merged one costs nothing. Reads the files that PEFT writes,
by numpy alone, since the engine's installer runs without torch.
"""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from memserver.errors import SetupError
from memserver.local.engine.gguf import Array
from memserver.local.engine.paths import ADAPTER_CONFIG, ADAPTER_WEIGHTS

_PREFIX = "base_model.model."


class Adapter:
    def __init__(self, folder: Path) -> None:
        """Read it. Raises SetupError: it is no LoRA adapter in the form of PEFT, or of a variant that adds otherwise."""
        try:
            config = json.loads((folder / ADAPTER_CONFIG).read_text(encoding="utf-8"))
            self._tensors = read_safetensors(folder / ADAPTER_WEIGHTS)
            self._scale = float(config["lora_alpha"]) / int(config["r"])
        except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
            raise SetupError(f"{folder} holds no LoRA adapter: {error!r}") from error
        if config.get("use_dora") or config.get("use_rslora") or config.get("fan_in_fan_out"):
            raise SetupError(f"{folder}: only plain LoRA can be merged.")

    @property
    def targets(self) -> set[str]:
        ends = ".lora_A.weight"
        return {
            f"{name.removeprefix(_PREFIX).removesuffix(ends)}.weight"
            for name in self._tensors
            if name.endswith(ends)
        }

    def merged(self, name: str, weights: Array) -> Array:
        """These weights with what the adapter adds to them, if it adds anything. Raises SetupError: the shapes differ."""
        part = f"{_PREFIX}{name.removesuffix('.weight')}.lora_"
        if f"{part}A.weight" not in self._tensors:
            return weights
        down, up = self._tensors[f"{part}A.weight"], self._tensors[f"{part}B.weight"]
        if (up.shape[0], down.shape[1]) != weights.shape:
            raise SetupError(f"The adapter does not fit {name}: {up.shape}, {down.shape}.")
        merged: Array = weights + self._scale * (up @ down)
        return merged


def read_safetensors(path: Path) -> Mapping[str, Array]:
    """The tensors of a safetensors file as float32; bf16, f16 and f32 are known.

    Raises:
        SetupError: another type of number.
        ValueError, struct.error: no such file.
    """
    data = path.read_bytes()
    [length] = struct.unpack_from("<Q", data)
    header: dict[str, Any] = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    return {name: _tensor(data, 8 + length, entry) for name, entry in header.items()}


def _tensor(data: bytes, start: int, entry: dict[str, Any]) -> Array:
    first, last = entry["data_offsets"]
    raw = data[start + first : start + last]
    shape = entry["shape"]
    match entry["dtype"]:
        case "BF16":
            upper = np.frombuffer(raw, dtype="<u2").astype(np.uint32) << 16
            return upper.view(np.float32).reshape(shape)
        case "F16" | "F32" as kind:
            numbers = np.frombuffer(raw, dtype="<f2" if kind == "F16" else "<f4")
            return numbers.astype(np.float32).reshape(shape)
        case kind:
            raise SetupError(f"numbers of type {kind} can't be read")
