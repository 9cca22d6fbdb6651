"""A random model of a few thousand weights with a tokenizer of its own, for tests of training."""

from collections.abc import Sequence
from pathlib import Path

from transformers import LlamaConfig, PreTrainedTokenizerFast

from sweet_rl.estimate import ARCHITECTURES
from sweet_rl.tiny import TEMPLATE, byte_tokenizer, write_tiny
from sweet_rl.trajectories import ChatMessage, Messages, Trajectory

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
