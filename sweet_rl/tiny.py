"""Tiny random models: any architecture at a thousandth of its size, with a tokenizer of single bytes.

What a dry run trains, and tests. Such a model knows nothing.
"""

import math
import re
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from memserver.errors import InvalidInput

TEMPLATE = "chat_template.jinja"
_SPECIAL = re.compile(r"<\|\w+\|>")
_HIDDEN, _LAYERS, _HEAD = 16, 2, 8


def byte_tokenizer(template: str) -> PreTrainedTokenizerFast:
    """One token for each byte, for two line breaks, and for what looks special in a chat template."""
    special = list(dict.fromkeys(_SPECIAL.findall(template)))
    if not special:
        raise InvalidInput("The chat template has no special tokens of the form <|…|>.")
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate([*letters, "ĊĊ"])}
    raw = Tokenizer(models.BPE(vocab=vocabulary, merges=[("Ċ", "Ċ")]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    raw.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token=special[-1], pad_token="<|pad|>")
    made.add_special_tokens({"additional_special_tokens": special})
    made.chat_template = template
    return made


def write_tiny(architecture: Path, folder: Path) -> Path:
    """Write a tiny model of the kind that a folder's config.json and chat template describe."""
    try:
        config = AutoConfig.from_pretrained(architecture)
        template = (architecture / TEMPLATE).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{architecture} describes no architecture: {error}") from error
    tokenizer = byte_tokenizer(template)
    small = type(config).from_dict(_reduced(config, tokenizer))
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(small, dtype=torch.float32).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _reduced(config: Any, tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:  # noqa: ANN401 - of transformers
    """The same kind in small: as many queries share a key as before."""
    values: dict[str, Any] = config.to_dict()
    values.pop("layer_types", None)  # one for each layer; made again from the rest
    heads = config.num_attention_heads // config.num_key_value_heads
    hidden = math.ceil(_HIDDEN / heads) * heads  # transformers wants a multiple
    return values | {
        "vocab_size": len(tokenizer),
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": _LAYERS,
        "num_attention_heads": heads,
        "num_key_value_heads": 1,
        "head_dim": _HEAD,
        "initializer_range": 0.3,  # so that what it says depends on what it reads
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
