"""A GGUF file as a Hugging Face model directory: config, tokenizer, bf16 weights, chat template.

Owns what the names in a GGUF of the llama architecture mean; `gguf.py` owns the file format. Run by
the installer with the engine's Python (see `install.py`); imports numpy and nothing of vLLM.

What llama.cpp's convert_hf_to_gguf.py did to the weights is undone here: other names, and the rows
of the query and key projections, which it reorders for its own kind of rotary embedding.
"""

import json
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np

from memserver.errors import SetupError
from memserver.local.engine.gguf import Array, GGUFFile
from memserver.local.engine.lora import Adapter

Json = dict[str, Any]

_LAYER_PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TOP_PARTS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_TOKENIZER = Path(__file__).with_name("tokenizer_template.json")
_CONTROL_TOKEN = 3  # of tokenizer.ggml.token_type


def convert(source: Path, target: Path, chat_template: str, adapter: Adapter | None = None) -> None:
    """Write the model in `source`, a GGUF of the llama architecture with SmolLM's tokenizer, to the empty directory `target`.

    The chat template, Jinja text, replaces the file's own; an adapter is merged into the weights.

    Raises:
        SetupError: the file can't be read, or is another kind of model, or the adapter is one for another.
    """
    gguf = GGUFFile(source)
    _check_kind(gguf.metadata)
    names = {name: _name(name) for name in gguf.tensors}
    if adapter is not None and (unknown := adapter.targets - set(names.values())):
        raise SetupError(f"the adapter is for another model: {sorted(unknown)[:3]}")
    weights = {
        name: _bfloat16(
            _weights(gguf, gguf_name)
            if adapter is None
            else adapter.merged(name, _weights(gguf, gguf_name))
        )
        for gguf_name, name in names.items()
    }
    tied = "lm_head.weight" not in weights
    _write_safetensors(target / "model.safetensors", weights)
    _write_json(target / "config.json", _config(gguf.metadata, tied=tied))
    _write_json(target / "generation_config.json", _special_ids(gguf.metadata))
    _write_json(target / "tokenizer.json", _tokenizer(gguf.metadata))
    _write_json(target / "tokenizer_config.json", _tokenizer_config(gguf.metadata))
    (target / "chat_template.jinja").write_text(chat_template, encoding="utf-8")


def _check_kind(metadata: Json) -> None:
    kind = tuple(
        metadata.get(key)
        for key in ("general.architecture", "tokenizer.ggml.model", "tokenizer.ggml.pre")
    )
    if kind != ("llama", "gpt2", "smollm"):
        raise SetupError(f"only a llama model with SmolLM's tokenizer can be converted, not {kind}")


def _name(gguf_name: str) -> str:
    if gguf_name in _TOP_PARTS:
        return _TOP_PARTS[gguf_name]
    try:
        _, layer, part, suffix = gguf_name.split(".")
        return f"model.layers.{layer}.{_LAYER_PARTS[part]}.{suffix}"
    except (ValueError, KeyError) as error:
        raise SetupError(f"a llama model has no tensor {gguf_name}") from error


def _weights(gguf: GGUFFile, name: str) -> Array:
    weights = gguf.tensor(name)
    if ".attn_q." in name:
        weights = _restore_rotary_order(weights, gguf.metadata["llama.attention.head_count"])
    elif ".attn_k." in name:
        weights = _restore_rotary_order(weights, gguf.metadata["llama.attention.head_count_kv"])
    return weights


def _restore_rotary_order(weights: Array, heads: int) -> Array:
    """Put a projection's rows back: per head, from (pair, half) order to (half, pair) order."""
    rows, columns = weights.shape
    pairs = weights.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def _bfloat16(values: Array) -> Array:
    """The upper half of each float32, rounded to nearest, ties to even."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def _write_safetensors(path: Path, tensors: dict[str, Array]) -> None:
    """Write bf16 tensors: header length u64, JSON header, then the data without gaps."""
    header: Json = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors.items():
        start, end = end, end + tensor.nbytes
        header[name] = {"dtype": "BF16", "shape": tensor.shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(tensor.tobytes())


def _write_json(path: Path, value: Json) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")


def _config(metadata: Json, *, tied: bool) -> Json:
    theta = metadata["llama.rope.freq_base"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "bfloat16",
        "hidden_act": "silu",
        "hidden_size": metadata["llama.embedding_length"],
        "intermediate_size": metadata["llama.feed_forward_length"],
        "num_hidden_layers": metadata["llama.block_count"],
        "num_attention_heads": metadata["llama.attention.head_count"],
        "num_key_value_heads": metadata["llama.attention.head_count_kv"],
        "head_dim": metadata["llama.rope.dimension_count"],
        "max_position_embeddings": metadata["llama.context_length"],
        # The file holds a float32; nine decimals are what its author wrote.
        "rms_norm_eps": round(metadata["llama.attention.layer_norm_rms_epsilon"], 9),
        "rope_theta": theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "vocab_size": len(metadata["tokenizer.ggml.tokens"]),
        "tie_word_embeddings": tied,
        "attention_bias": False,
        "mlp_bias": False,
    } | _special_ids(metadata)


def _special_ids(metadata: Json) -> Json:
    return {
        "bos_token_id": metadata["tokenizer.ggml.bos_token_id"],
        "eos_token_id": metadata["tokenizer.ggml.eos_token_id"],
        "pad_token_id": metadata["tokenizer.ggml.padding_token_id"],
    }


def _tokenizer(metadata: Json) -> Json:
    """The tokenizer as Hugging Face's `tokenizers` reads it: byte-level BPE, digits one by one."""
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    kinds: list[int] = metadata["tokenizer.ggml.token_type"]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tokenizer: Json = json.loads(_TOKENIZER.read_text(encoding="utf-8"))
    tokenizer["added_tokens"] = [
        {"id": number, "content": token, **flags, "special": True}
        for number, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind == _CONTROL_TOKEN
    ]
    tokenizer["model"]["vocab"] = {token: number for number, token in enumerate(tokens)}
    tokenizer["model"]["merges"] = [merge.split(" ") for merge in metadata["tokenizer.ggml.merges"]]
    return tokenizer


def _tokenizer_config(metadata: Json) -> Json:
    tokens = metadata["tokenizer.ggml.tokens"]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[metadata["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[metadata["tokenizer.ggml.eos_token_id"]],
        "unk_token": tokens[metadata["tokenizer.ggml.unknown_token_id"]],
        "pad_token": tokens[metadata["tokenizer.ggml.padding_token_id"]],
        "model_max_length": metadata["llama.context_length"],
        "clean_up_tokenization_spaces": False,
        "add_prefix_space": False,
    }


def main(arguments: list[str]) -> int:
    """Convert `GGUF TARGET CHAT_TEMPLATE [ADAPTER]`; the installer's child process."""
    source, target, template, *adapters = map(Path, arguments)
    try:
        adapter = Adapter(adapters[0]) if adapters else None
        convert(source, target, template.read_text(encoding="utf-8"), adapter)
    except (SetupError, OSError, KeyError) as error:
        sys.stderr.write(f"{source} can't be converted: {error!r}\n")
        return 1
    return 0
