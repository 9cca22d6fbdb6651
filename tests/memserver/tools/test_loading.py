"""Where Python tools come from: a module's name, or an entry point; what is wrong is said with its place."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memserver.errors import SetupError
from memserver.settings import Settings
from memserver.tools.loading import load_tools
from memserver.wiring.services import python_tools

GOOD = '''
from memserver.tools.function import tool

@tool
def {name}(x: int) -> int:
    """Do it."""
    return x
'''
Write = Callable[[str, str], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes modules into the working directory; they are forgotten after the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)

    def write(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")

    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


def names(*modules: str) -> list[str]:
    return [tool.spec.name for tool in load_tools(modules)]


def test_a_module_in_the_working_directory(write: Write) -> None:
    write("mine.py", GOOD.format(name="one") + GOOD.format(name="two"))
    assert names("mine") == ["one", "two"]


def test_a_package_with_the_submodules_that_it_imports(write: Write) -> None:
    write("pack/__init__.py", "from pack.inner import three\n" + GOOD.format(name="four"))
    write("pack/inner.py", GOOD.format(name="three"))
    assert sorted(names("pack")) == ["four", "three"]
    assert sorted(names("pack", "pack.inner")) == ["four", "three"]


def test_an_installed_package_registers_by_entry_point(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("installed.py", GOOD.format(name="five"))
    write(
        "installed-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: installed\nVersion: 1\n"
    )
    write("installed-1.0.dist-info/entry_points.txt", "[memserver.tools]\nx = installed\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert names() == ["five"]


def test_the_setting_names_modules(write: Write) -> None:
    write("a.py", GOOD.format(name="six"))
    write("b.py", GOOD.format(name="seven"))
    settings = Settings(_env_file=None, tools="a, b")
    assert [tool.spec.name for tool in python_tools(settings)] == ["six", "seven"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "The module wrong has no tools."),
        ("import nowhere_at_all\n", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("x = 1\nx.y\n", "AttributeError: 'int' object has no attribute 'y' (HERE/wrong.py:2)"),
        ("def f(:\n", "SyntaxError"),
        (
            "class Odd(Exception): ...\nraise Odd('no licence')\n",
            "Odd: no licence (HERE/wrong.py:2)",
        ),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        (
            GOOD.format(name="f").replace(": int)", ")"),
            "no type for its parameter x. (HERE/wrong.py:4)",
        ),
        (GOOD.format(name="send_message"), "two tools named send_message: at HERE/wrong.py:4 and"),
    ],
)
def test_what_is_wrong_is_an_error_at_the_start_with_its_place(
    write: Write, tmp_path: Path, text: str, reason: str
) -> None:
    write("wrong.py", text)
    with pytest.raises(SetupError) as raised:
        python_tools(Settings(_env_file=None, tools="wrong"))
    assert reason.replace("HERE", str(tmp_path)) in raised.value.message


def test_a_module_that_is_not_there_is_reported(write: Write) -> None:
    with pytest.raises(SetupError, match="no module nobodys_tools"):
        load_tools(["nobodys_tools"])
