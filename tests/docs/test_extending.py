"""docs/architecture.md, "Extending": a package with its entry points adds a command and a tool."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.doc_blocks import REPOSITORY, blocks

PAGE = REPOSITORY / "docs" / "architecture.md"
LISTED = (
    "from memserver.tools.loading import load_tools; print([t.spec.name for t in load_tools([])])"
)


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """The environment of a Python in which the page's package is installed."""
    [project] = [block.text for block in blocks(PAGE) if block.language == "toml"]
    [module] = [block.text for block in blocks(PAGE) if block.language == "python"]
    about = tomllib.loads(project)["project"]
    (tmp_path / "greetings.py").write_text(module, encoding="utf-8")
    info = tmp_path / f"{about['name']}-{about['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Name: {about['name']}\nVersion: {about['version']}\n")
    points = [
        line
        for group, named in about["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in named.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(points), encoding="utf-8")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(REPOSITORY)])}


def test_the_packages_command_is_one_of_memservers(installed: dict[str, str]):
    assert ran(installed, "-m", "memserver", "greet", "Ada") == "Hello, Ada.\n"
    assert "Greet somebody." in ran(installed, "-m", "memserver", "--help")


def test_the_packages_tool_can_be_attached(installed: dict[str, str]):
    assert ran(installed, "-c", LISTED) == "['greeting']\n"


def ran(environment: dict[str, str], *arguments: str) -> str:
    return subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ).stdout
