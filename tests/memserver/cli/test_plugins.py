"""The command line's list of commands, and those that packages add to it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memserver import __version__
from memserver.cli.main import Commands, app

Install = Callable[[str, str, str], None]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return tmp_path / "site"


@pytest.fixture
def install(site: Path) -> Install:
    """Put a package with one command where Python finds installed packages."""

    def make(name: str, code: str, target: str) -> None:
        info = site / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[memserver.commands]\n{name} = {target}\n")
        (site / f"{name}.py").write_text(code)

    return make


@pytest.fixture
def run(site: Path, tmp_path: Path) -> Run:
    def make(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
        return subprocess.run(
            [sys.executable, "-m", "memserver", *arguments],
            env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200", **environment},
            cwd=Path(__file__).parents[3],
            capture_output=True,
            text=True,
            check=False,
        )

    return make


ONE = """
import typer
app = typer.Typer()
@app.command()
def backup(to: str) -> None:
    '''Copy all agents to a bucket.'''
    print(f"copied to {to}")
"""
SEVERAL = """
import typer
app = typer.Typer(help="Plans of a zoo.")
@app.command()
def feed() -> None:
    '''Feed them.'''
    print("fed")
@app.command()
def clean() -> None:
    '''Clean the cages.'''
"""


def test_an_installed_package_adds_a_command_or_a_group(install: Install, run: Run) -> None:
    install("bucket", ONE, "bucket:app")
    install("zoo", SEVERAL, "zoo:app")
    listed = run("--help").stdout
    assert "Copy all agents to a bucket." in listed
    assert "Plans of a zoo." in listed
    assert run("bucket", "s3://x").stdout == "copied to s3://x\n"
    assert run("zoo", "feed").stdout == "fed\n"
    assert "No such command 'backpu'. Did you mean 'backup'?" in run("backpu").stderr


@pytest.mark.parametrize(
    ("code", "target", "why"),
    [
        ("import no_such_thing", "broken:app", "ModuleNotFoundError: No module named"),
        ("1 / 0", "broken:app", "ZeroDivisionError: division by zero"),
        ("def f(:", "broken:app", "SyntaxError"),
        ("class Odd(Exception): pass\nraise Odd('no licence')", "broken:app", "Odd: no licence"),
        ("raise SystemExit(3)", "broken:app", "SystemExit: 3"),
        ("", "broken:app", "AttributeError"),
        ("app = 7", "broken:app", "no typer.Typer"),
    ],
)
def test_a_broken_package_is_listed_with_the_reason_and_disturbs_no_other_command(
    install: Install, run: Run, code: str, target: str, why: str
) -> None:
    install("broken", code, target)
    install("bucket", ONE, "bucket:app")
    listed = run("--help")
    assert listed.returncode == 0
    assert "Can't be used." in listed.stdout
    assert why in listed.stdout
    assert "Serve agents over HTTP." in listed.stdout
    assert run("bucket", "here").stdout == "copied to here\n"
    assert run("--version").stdout == f"memserver {__version__}\n"
    asked = run("broken")
    assert (asked.returncode, asked.stdout) == (1, "")
    assert asked.stderr.startswith("memserver: The command broken ")
    assert why in asked.stderr
    assert "Traceback" not in asked.stderr


def test_a_package_does_not_replace_a_command_of_ours(install: Install, run: Run) -> None:
    install("export", ONE, "export:app")
    assert "Write an agent with its whole memory to a file." in run("--help").stdout
    assert "copied" not in run("export", "--help").stdout


@pytest.mark.parametrize("name", Commands.own)
def test_the_list_says_what_each_command_says_itself(name: str) -> None:
    command = Commands.own[name].load(name)
    assert command.help.startswith(Commands.own[name].help.rstrip("."))
    shown = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    assert command.help.split(".")[0] in " ".join(shown.output.split())


def test_serve_and_chat_come_first_and_research_last(run: Run) -> None:
    listed = run("--help").stdout
    names = ("serve", "chat", "agents", "doctor", "eval", "train")
    places = [listed.index(f"│ {name} ") for name in names]
    assert places == sorted(places)


def test_the_list_of_commands_imports_none_of_them(run: Run) -> None:
    """What makes `memserver --help` quick: no database driver, no HTTP, no settings."""
    heavy = ("psycopg", "fastapi", "aiohttp", "httpx2", "pydantic_settings", "sqlalchemy", "numpy")
    code = (
        "import sys\nfrom memserver.cli.main import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print('imported:', sorted(set({heavy}) & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.endswith("imported: []\n")
    assert run("--version").stdout == f"memserver {__version__}\n"


def test_a_shell_completes_commands(run: Run) -> None:
    completed = run(_MEMSERVER_COMPLETE="complete_bash", COMP_WORDS="memserver te", COMP_CWORD="1")
    assert completed.stdout.split() == ["tenants"]


@pytest.mark.parametrize(("command", "missing"), [("eval", "numpy"), ("train", "yaml")])
def test_without_its_packages_a_command_says_what_to_install(
    site: Path, run: Run, command: str, missing: str
) -> None:
    site.mkdir()
    (site / f"{missing}.py").write_text("raise ModuleNotFoundError(\"No module named 'it'\")")
    done = run(command, "list")
    assert done.returncode == 1
    assert done.stderr.splitlines()[1] == (
        f"  In a checkout: pip install '.[{command}]'. From the wheel: "
        f"pip install 'memserver-{__version__}-py3-none-any.whl[{command}]'."
    )
