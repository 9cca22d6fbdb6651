"""Chat templates for tests."""

from pathlib import Path

import sweet_rl

LLAMA = Path(sweet_rl.__file__).parent / "architectures" / "llama-3.1-8b"
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
LLAMA_3 = (LLAMA / "chat_template.jinja").read_text(encoding="utf-8")
