"""A random model of a few thousand weights with a tokenizer of its own, for tests of training."""

from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from memserver.sweet_rl.trajectories import ChatMessage, Messages, Trajectory

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
LLAMA_3 = (
    "{{ '<|begin_of_text|>' }}{% for message in messages %}"
    "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' "
    "+ (message['content'] | trim) + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
)
_SPECIAL = {
    CHATML: ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    LLAMA_3: ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
}


def tokenizer(template: str = CHATML) -> PreTrainedTokenizerFast:
    """One token for each byte, with the merge of two line breaks that trips up masks, and a template."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate([*letters, "ĊĊ"])}
    raw = Tokenizer(models.BPE(vocab=vocabulary, merges=[("Ċ", "Ċ")]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    raw.decoder = decoders.ByteLevel()
    special = _SPECIAL[template]
    made = PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token=special[-1], pad_token=special[0]
    )
    made.add_special_tokens({"additional_special_tokens": list(special)})
    made.chat_template = template
    return made


def write_model(folder: Path, template: str = CHATML) -> Path:
    """A model's folder, the same each time."""
    made = tokenizer(template)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(made),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=2048,
        eos_token_id=made.eos_token_id,
        pad_token_id=made.pad_token_id,
        initializer_range=0.3,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    made.save_pretrained(folder)
    return folder


def chat(*said: str, system: str = "Ask, then answer.") -> Messages:
    """Messages that begin with the human, in turns."""
    messages: list[ChatMessage] = [{"role": "system", "content": system}]
    for place, text in enumerate(said):
        messages.append({"role": "assistant" if place % 2 else "user", "content": text})
    return tuple(messages)


def played(task: str, sample: int, reward: float, *said: str) -> Trajectory:
    """A trajectory with these words."""
    return Trajectory(
        task=task,
        sample=sample,
        hidden=f"def f(x): return x > {len(task)}",
        messages=chat(*said),
        answer=said[-1],
        reward=reward,
    )


def some_trajectories(tasks: int = 4) -> Sequence[Trajectory]:
    """For each task a success of two turns, and two failures."""
    return [
        one
        for number in range(tasks)
        for one in (
            played(f"t{number}", 0, 1, f"I want f{number}.", "Which limit?", "7", "x > 7"),
            played(f"t{number}", 1, 0.5, f"I want f{number}.", "x > 3"),
            played(f"t{number}", 2, 0, f"I want f{number}.", "Why?", "No idea.", "x < 7 or so"),
        )
    ]
