"""The fenced blocks of our documents, and which of them are examples that a test runs.

The convention, in the block's info string after the language:

    bash test           run it; it must exit with 0 (python test likewise)
    bash not-run: why   don't, for the reason given
    text output         directly after a block that is run: what it prints; … means anything
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
EXECUTABLE = {"bash", "python"}
ALIASES = {"sh", "shell", "console", "py", "python3", "pycon", "zsh"}
NOT_RUN = "not-run:"
WITH_PAGES = ("docs", "examples", "adapters", "memserver_evals", "sweet_rl", "deploy")
_FENCE = re.compile(r"^(?P<indent> *)(?P<fence>```+)(?P<info>.*)$")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, what stands after that, its text and its first line's number."""

    document: Path
    line: int
    language: str
    marks: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.document.relative_to(REPOSITORY)}:{self.line}"

    @property
    def is_run(self) -> bool:
        return self.language in EXECUTABLE and self.marks == "test"

    @property
    def reason_not_to_run(self) -> str:
        return self.marks.removeprefix(NOT_RUN).strip() if self.marks.startswith(NOT_RUN) else ""


@dataclass(frozen=True)
class Example:
    """A block that is run, and what the document says that it prints, if it says so."""

    block: Block
    output: Block | None


def documents() -> list[Path]:
    """What a reader of the project reads."""
    beside = [
        found for folder in WITH_PAGES for found in sorted((REPOSITORY / folder).rglob("*.md"))
    ]
    return [REPOSITORY / "README.md", *beside]


def blocks(document: Path) -> list[Block]:
    return list(_blocks(document, document.read_text(encoding="utf-8").splitlines()))


def examples(document: Path) -> list[Example]:
    """The document's blocks that are run, in order."""
    found = blocks(document)
    lines = document.read_text(encoding="utf-8").splitlines()
    made = []
    for block, following in zip_longest(found, found[1:]):
        if block.is_run:
            shown = following if following and _is_output_of(block, following, lines) else None
            made.append(Example(block, shown))
    return made


def prose(document: Path) -> str:
    """The document without its fenced blocks."""
    lines = document.read_text(encoding="utf-8").splitlines()
    inside = {
        number
        for block in blocks(document)
        for number in range(block.line - 1, block.line + len(block.text.splitlines()) + 1)
    }
    return "\n".join(line for number, line in enumerate(lines, start=1) if number not in inside)


def matches(shown: str, printed: str) -> bool:
    """Whether what was printed is what is shown, where … means anything."""
    parts = [re.escape(part) for part in _stripped(shown).split("…")]
    return re.fullmatch(".*?".join(parts), _stripped(printed), re.DOTALL) is not None


def _stripped(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def _is_output_of(block: Block, following: Block, lines: list[str]) -> bool:
    end = block.line + len(block.text.splitlines())
    between = lines[end : following.line - 2]
    return following.marks == "output" and not any(line.strip() for line in between)


def _blocks(document: Path, lines: list[str]) -> Iterator[Block]:
    opened: re.Match[str] | None = None
    body: list[str] = []
    start = 0
    for number, line in enumerate(lines, start=1):
        if opened is None:
            opened = _FENCE.match(line)
            body, start = [], number + 1
        elif line.strip() == opened["fence"]:
            language, _, marks = opened["info"].strip().partition(" ")
            text = "".join(f"{each.removeprefix(opened['indent'])}\n" for each in body)
            yield Block(document, start, language, marks.strip(), text)
            opened = None
        else:
            body.append(line)
    assert opened is None, f"{document}: the block at line {start} has no end"
