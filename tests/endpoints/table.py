"""The table of providers in docs/endpoints.md: what is simulated, and how the story went.

Run it after a change of a profile, or of how endpoints are asked: `python -m tests.endpoints.table`. It runs the
stories; a test fails where the page is out of date.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.endpoints.provider import DATE, OVERFLOWS, Provider
from tests.endpoints.providers.catalog import PROVIDERS
from tests.endpoints.story import Outcome

PAGE = Path(__file__).parents[2] / "docs" / "endpoints.md"
BEGIN, END = "<!-- profiles:begin -->", "<!-- profiles:end -->"
FOLDER = "ENDPOINT_ROWS"
"""The variable that names where stories write their rows."""
HEAD = f"""
Simulated by stubs in `tests/endpoints/`, which keep to rules that are publicly known; read up on {DATE}. How providers
say that a prompt is too long is from [here]({OVERFLOWS}).

| provider | simulated | how it is asked in the end | whole, streamed | refused at first |
|---|---|---|---|---|
"""


REAL = """
Real servers, asked by hand with SmolLM2-135M-Instruct (with the hermes parser on the H200 memserver-small), which can't follow the story: each message was
answered, whole and streamed, and no request was refused for good. `make nightly` does so again with llama.cpp's.

| server | asked by |
|---|---|
| vLLM 0.32.0 on a CPU, hermes parser | tools |
| vLLM 0.26.0 on an H200, hermes parser | tools |
| vLLM 0.26.0 on an H200, mistral parser, its `[TOOL_CALLS]` added to the tokenizer | tools |
| vLLM 0.26.0 on an H200, openai parser | tools |
| llama.cpp 11434 | json_schema |
| llama.cpp 11434 with the chat template of Gemma 2 | json_schema; `roles`: "alternating" |

The requests of the stories also pass mistral-common's validator, and are rendered by the chat templates that llama.cpp
ships of Mistral, Gemma, Qwen, Llama, Granite, GLM, MiniMax, gpt-oss, DeepSeek and Kimi models.
"""
"""What no test can check."""


def row(provider: Provider, reported: Outcome | str) -> str:
    """A provider's line: how its story went, or why it doesn't work."""
    rules = "; ".join(f"[{rule.words}]({rule.source})" for rule in provider.rules)
    if isinstance(reported, str):
        return f"| {provider.title} | {rules} | | no: {reported} | |"
    return f"| {provider.title} | {rules} | {reported.how} | yes | {reported.refused[0]} |"


def keep(provider: Provider, reported: Outcome | str) -> None:
    """Write the row down for `main`, or compare it with the page. Raises AssertionError."""
    made = row(provider, reported)
    folder = os.environ.get(FOLDER)
    if folder is not None:
        Path(folder, provider.slug).write_text(made, encoding="utf-8")
    else:
        assert made in PAGE.read_text(encoding="utf-8"), "run `python -m tests.endpoints.table`"


def rows() -> list[str]:
    """The lines of the page's table."""
    table = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    simulated = table.partition(REAL.strip())[0]
    return [line for line in simulated.splitlines() if line.startswith("| ")][1:]


def main() -> int:
    """Play the stories and write the table."""
    with tempfile.TemporaryDirectory() as folder:
        stories = str(Path(__file__).with_name("test_stories.py"))
        options = ("-q", "--tb=line", "--numprocesses=2", "-k", "an_agent")
        played = subprocess.run(
            [sys.executable, "-m", "pytest", *options, stories],
            check=False,
            env={**os.environ, FOLDER: folder},
        )
        paths = [Path(folder, provider.slug) for provider in PROVIDERS]
        table = "\n".join(path.read_text(encoding="utf-8") for path in paths if path.exists())
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}{HEAD}{table}\n{REAL}{END}{after}", encoding="utf-8")
    return played.returncode


if __name__ == "__main__":
    sys.exit(main())
