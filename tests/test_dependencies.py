"""What installing memserver alone brings is enough for the server, its client and the command line."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
ROOMS_OF_THE_ENGINE = ("convert", "gguf", "lora")
"""Modules of memserver/local/engine that run in the engine's own environment."""
READERS_OF_THE_EXTRA_FILES = ("opendocument", "slides")
"""Modules of memserver/memory/parsing that are loaded by name, where what they need is installed."""
COMMANDS = ("memserver_evals/cli/main.py", "sweet_rl/cli/main.py")
"""What `memserver --help` imports of the other packages."""


def imported_at_start(tree: ast.AST) -> Iterator[str]:
    """Packages that a module needs to be imported: not those of its functions, nor those for type checkers."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]
        yield from imported_at_start(node)


def normal(distribution: str) -> str:
    return re.split(r"[\[><=~!; ]", distribution)[0].lower().replace("_", "-")


@pytest.fixture(scope="module")
def usable() -> set[str]:
    """Top-level packages of the standard library, ours, and those of the declared dependencies."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {normal(each) for each in project["dependencies"]}
    installed = {
        package
        for package, distributions in packages_distributions().items()
        if declared & {normal(each) for each in distributions}
    }
    return installed | sys.stdlib_module_names | {"memserver", "memserver_evals", "sweet_rl"}


def test_the_server_needs_nothing_that_only_an_extra_brings(usable: set[str]) -> None:
    modules = [*(REPOSITORY / "memserver").rglob("*.py"), *(REPOSITORY / each for each in COMMANDS)]
    found = {
        f"{path.relative_to(REPOSITORY)}: {package}"
        for path in modules
        if path.stem not in (*ROOMS_OF_THE_ENGINE, *READERS_OF_THE_EXTRA_FILES)
        for package in imported_at_start(ast.parse(path.read_text(encoding="utf-8")))
        if package not in usable
    }
    assert not found


def test_no_module_of_the_server_imports_those_of_the_engines_environment() -> None:
    names = {f"memserver.local.engine.{each}" for each in ROOMS_OF_THE_ENGINE}
    found = {
        str(path.relative_to(REPOSITORY))
        for path in (REPOSITORY / "memserver").rglob("*.py")
        if path.stem not in ROOMS_OF_THE_ENGINE
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module in names
    }
    assert not found
