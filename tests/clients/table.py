"""The clients that are tested, what each does, and the table of docs/openai.md: `python -m tests.clients.table`."""

import json
import re
from dataclasses import dataclass, field
from typing import Literal

from tests.clients.programs import HERE

PAGE = HERE.parents[1] / "docs" / "openai.md"
BEGIN, END = "<!-- tests/clients/table.py writes this -->\n", "<!-- to here -->\n"
STEPS = {
    "text": "echo: one",
    "stream": "echo: two",
    "tools": "It is sunny in Oslo.",
    "structured": {"name": "Ada", "age": 36},
    "stop": "stopped",
}
"""What a client does, and what comes of it."""


@dataclass(frozen=True, slots=True)
class Client:
    """`cannot`: the steps that this version of it doesn't do."""

    title: str
    package: str
    runs_in: Literal["python", "node", "browser"]
    script: str
    cannot: frozenset[str] = field(default_factory=frozenset)

    @property
    def steps(self) -> list[str]:
        return [step for step in STEPS if step not in self.cannot]

    @property
    def version(self) -> str:
        if self.runs_in == "python":
            locked = (HERE / "python" / "requirements.txt").read_text(encoding="utf-8")
            found = re.search(rf"^{re.escape(self.package)}==(.+)$", locked, re.MULTILINE)
            assert found is not None, self.package
            return found[1]
        locked = (HERE / "node" / "package.json").read_text(encoding="utf-8")
        version: str = json.loads(locked)["dependencies"][self.package]
        return version


CLIENTS = (
    Client("OpenAI's SDK for Python, chat completions", "openai", "python", "openai"),
    Client("OpenAI's SDK for Python, responses", "openai", "python", "responses"),
    Client("OpenAI's Agents SDK", "openai-agents", "python", "agents"),
    Client("LiteLLM", "litellm", "python", "litellm"),
    Client("LangChain", "langchain-openai", "python", "langchain"),
    Client("Pydantic AI", "pydantic-ai-slim", "python", "pydantic_ai"),
    Client("llm", "llm", "python", "llm"),
    Client("OpenAI's SDK for Node", "openai", "node", "openai"),
    Client("Vercel's AI SDK", "ai", "node", "ai"),
    Client("OpenAI's SDK in a page in Chromium", "openai", "browser", "page"),
)


def table() -> str:
    """The table, in Markdown."""
    lines = [
        f"| client | package | version | {' | '.join(STEPS)} |",
        "|---" * (3 + len(STEPS)) + "|",
    ]
    for client in CLIENTS:
        does = ["yes" if step in client.steps else "no" for step in STEPS]
        where = "PyPI" if client.runs_in == "python" else "npm"
        row = [client.title, f"`{client.package}` ({where})", client.version, *does]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def written() -> str:
    """The page with the table in its place."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
