"""A random model of a few thousand weights with a tokenizer of its own, for tests of training."""

from pathlib import Path

from transformers import LlamaConfig, PreTrainedTokenizerFast

from sweet_rl.estimate import ARCHITECTURES
from sweet_rl.tiny import TEMPLATE, byte_tokenizer, write_tiny

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
LLAMA_3 = (ARCHITECTURES / "llama-3.1-8b" / TEMPLATE).read_text(encoding="utf-8")


def tokenizer(template: str = CHATML) -> PreTrainedTokenizerFast:
    """Of single bytes and two line breaks, whose merge trips up masks."""
    return byte_tokenizer(template)


def write_model(folder: Path, template: str = CHATML) -> Path:
    """A model's folder, the same each time."""
    architecture = folder.parent / "architecture"
    LlamaConfig(num_key_value_heads=8).save_pretrained(architecture)
    (architecture / TEMPLATE).write_text(template, encoding="utf-8")
    return write_tiny(architecture, folder)
