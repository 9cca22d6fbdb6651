"""How the tests are laid out: they mirror the packages, and what they share stands in modules of its own."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PACKAGES = ("memserver", "memserver_evals", "sweet_rl")
OF_BENCHMARKS = {"benchmarks/", "processes/test_gpu_benchmarks.py"}
"""The tests of the benchmarks themselves."""


def imported(source: str) -> Iterator[str]:
    """Full names of all that a module imports, within its functions too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{name.name}" for name in node.names)


def misplaced(name: str) -> bool:
    """Whether what is imported is a benchmark's, another test's or a conftest's."""
    package, *rest = name.split(".")
    tests = package == "tests" and any(
        part == "conftest" or part.startswith("test_") for part in rest
    )
    return package == "benchmarks" or tests


@pytest.mark.parametrize(
    "line",
    [
        "from benchmarks.load import Turn",
        "import benchmarks.load",
        "from benchmarks import load",
        "from tests.memserver.api.test_lists import pages",
        "from tests.memserver.api import test_lists",
        "def test():\n    from tests.sweet_rl.conftest import tiny_base",
    ],
)
def test_an_import_from_a_test_or_a_benchmark_is_noticed(line: str) -> None:
    assert any(misplaced(name) for name in imported(line))


def test_what_tests_share_stands_in_no_test_and_no_benchmark() -> None:
    found = {
        f"{path.relative_to(TESTS)}: {name}"
        for path in TESTS.rglob("*.py")
        if not path.relative_to(TESTS).as_posix().startswith(tuple(OF_BENCHMARKS))
        for name in imported(path.read_text(encoding="utf-8"))
        if misplaced(name)
    }
    assert not found


@pytest.mark.parametrize("package", PACKAGES)
def test_each_folder_of_tests_is_named_like_the_room_that_it_tests(package: str) -> None:
    folders = {each.parent.relative_to(TESTS) for each in (TESTS / package).rglob("test_*.py")}
    assert folders
    assert not {each for each in folders if not (TESTS.parent / each).is_dir()}


@pytest.mark.parametrize("package", PACKAGES)
def test_no_two_public_classes_of_a_package_have_the_same_name(package: str) -> None:
    found = Counter(
        node.name
        for path in (TESTS.parent / package).rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert not [name for name, count in found.items() if count > 1]
